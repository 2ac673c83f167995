// Package leaseholdtest gives tests a Redis of their own. It runs inside the
// test's process, needs no installation, and works outside and inside a
// [testing/synctest] bubble. In a bubble the server follows the fake clock:
// ten minutes of holding a lock pass in some milliseconds.
//
//	func TestExport(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			caps, err := semaphore.New(leaseholdtest.Client(t), semaphore.Config{Name: "exports", Limit: 1})
//			if err != nil {
//				t.Fatal(err)
//			}
//			defer caps.Close(t.Context())
//			…
//		})
//	}
//
// In a bubble, close each handle before the bubble's function returns: a lease
// that is still held keeps a goroutine that renews it, and synctest reports a
// deadlock for goroutines that are left.
//
// The server is miniredis, which runs all that package semaphore, mutex and
// singleflight need. It is no place to measure speed, and it has no Cluster, no
// replicas and no client-side caching.
package leaseholdtest

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/embedded"
)

// Client starts an empty server and returns a client of it. Each call starts
// another server. The client and the server are closed by t.Cleanup. In a bubble
// it must be called inside the bubble, with the bubble's t.
func Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	return Clients(t, 1)[0]
}

// Clients is [Client] with n clients of one server, n at least 1. They stand for
// n processes: a test lets a process crash, or lose its Redis, when it closes
// that process's client.
func Clients(t testing.TB, n int) []redis.UniversalClient {
	t.Helper()
	if n < 1 {
		panic(fmt.Sprintf("leaseholdtest: n is %d; want at least 1", n))
	}
	server := embedded.New(t)
	clients := make([]redis.UniversalClient, n)
	for i := range clients {
		rdb := redis.NewClient(embedded.Options(server))
		t.Cleanup(func() { _ = rdb.Close() }) // an error says that the test closed it
		clients[i] = rdb
	}
	return clients
}
