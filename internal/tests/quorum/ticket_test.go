package quorum

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// Callers who come in one microsecond get votes of different servers, and yield to the first of them. Without an order
// among them they would exchange votes without end, and this test would not end either.
func TestCallersOfOneMicrosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []redis.UniversalClient
		for range 3 {
			_, connect := redistest.Bubble(t)
			servers = append(servers, connect())
		}
		m := redistest.Must(mutex.NewQuorum(servers, mutex.Config{Name: "f"}))(t)
		began := time.Now()
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() { redistest.NoError(t, redistest.Must(m.Lock(t.Context(), "k"))(t).Unlock()) })
		}
		callers.Wait()
		redistest.AtMost(t, time.Since(began), time.Second, "five turns took %v")
		redistest.NoError(t, m.Close(t.Context()))
	})
}
