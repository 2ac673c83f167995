// Package leaseholdtest gives each test a Redis of its own. The server runs inside the test's process, needs no
// installation, and works outside and inside a [testing/synctest] bubble. In a bubble the server follows the fake
// clock: holding a lock for ten minutes takes some milliseconds.
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
// In a bubble, close each handle before the bubble's function returns. A lease that is still held keeps a goroutine
// that renews it, and synctest reports a deadlock for goroutines that are left.
//
// The server is miniredis, which runs everything that packages semaphore, mutex and singleflight need. Do not measure
// speed with it. It has no Cluster, no replicas and no client-side caching.
package leaseholdtest

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/embedded"
)

// Client starts an empty server and returns a client of it. Each call starts another server. t.Cleanup closes the
// client and the server. For a bubble, call it inside the bubble, with the bubble's t.
func Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	return Clients(t, 1)[0]
}

// Clients is like [Client] but returns n clients of one server; n is at least 1. Each client
// stands for one process. To let a process crash or lose its Redis, close its client.
func Clients(t testing.TB, n int) []redis.UniversalClient {
	t.Helper()
	if n < 1 {
		panic(fmt.Sprintf("leaseholdtest: n is %d; want at least 1", n))
	}
	server := embedded.New(t)
	embedded.StepClock(server)
	clients := make([]redis.UniversalClient, n)
	for i := range clients {
		options := embedded.Options(server)
		options.ReadTimeout = time.Minute // the server never hangs, but a busy machine may be slow
		// Each caller can have a connection of its own, so they must be small.
		options.PoolSize, options.ReadBufferSize, options.WriteBufferSize = 10_000, 4096, 4096
		options.DisableIdentity = true
		rdb := redis.NewClient(options)
		t.Cleanup(func() { _ = rdb.Close() }) // it fails if the test has already closed rdb
		clients[i] = rdb
	}
	return clients
}

// Outage makes every call of rdb fail as if the connection was refused, until end is called. Other clients of the same
// server are not affected. Messages still arrive, but this makes no difference, because nothing depends on them.
func Outage(rdb redis.UniversalClient) (end func()) {
	o := new(outage)
	rdb.AddHook(o) // a hook cannot be removed; it does nothing after end
	return func() { o.over.Store(true) }
}

type outage struct{ over atomic.Bool }

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (o *outage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if o.over.Load() {
			return next(ctx, cmd)
		}
		cmd.SetErr(errRefused)
		return errRefused
	}
}

func (o *outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if o.over.Load() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds { // go-redis takes the error from each command
			cmd.SetErr(errRefused)
		}
		return errRefused
	}
}
