package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// Callers of one microsecond, in two processes, get votes of different servers, and yield to the first of them. Without
// an order among them they would exchange votes without end.
func TestCallersOfOneMicrosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var calls atomic.Int64
		var servers []redis.UniversalClient
		for range 3 {
			_, connect := redistest.Bubble(t)
			rdb := connect()
			rdb.AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
				if calls.Add(1) > 20_000 {
					cancel()
				}
				return send()
			}))
			servers = append(servers, rdb)
		}
		var callers sync.WaitGroup
		for range 2 {
			m := redistest.Must(mutex.NewQuorum(servers, mutex.Config{Name: "f"}))(t)
			defer m.Close(context.Background())
			for range 5 {
				callers.Go(func() {
					l, err := m.Lock(ctx, "k")
					if redistest.Check(t, err == nil, "after %d calls: %v", calls.Load(), err); err == nil {
						redistest.NoError(t, l.Unlock())
					}
				})
			}
		}
		callers.Wait()
		t.Logf("ten turns took %d calls", calls.Load())
	})
}
