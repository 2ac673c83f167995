package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
)

// 64 goroutines of four clients want two to four of eight locks each: with multi, which takes any order, and with
// locks that are taken one after the other in the right order.
func BenchmarkSeveral(b *testing.B) {
	srv := harness.StartOwn(b)
	var handles []*mutex.Mutex
	for range clients {
		handles = append(handles, locks(b, srv.Client()))
	}
	crowd := func(name string, turn func(ctx context.Context, m *mutex.Mutex, keys []string) error) harness.Crowd {
		return harness.Crowd{Name: name, Pair: func(ctx context.Context, i int) error {
			var keys []string
			for _, n := range rand.Perm(8)[:2+rand.IntN(3)] {
				keys = append(keys, strconv.Itoa(n))
			}
			return turn(ctx, handles[i%clients], keys)
		}}
	}
	var nested func(ctx context.Context, m *mutex.Mutex, keys []string) error
	nested = func(ctx context.Context, m *mutex.Mutex, keys []string) error {
		if len(keys) == 0 {
			return nil
		}
		return lockTurn(ctx, m, keys[0], func() { redistest.NoError(b, nested(ctx, m, keys[1:])) })
	}
	harness.InterleaveCrowds(b, clients*goroutines, 500*time.Millisecond,
		crowd("multi", func(ctx context.Context, m *mutex.Mutex, keys []string) error {
			var items []multi.Item
			for _, key := range keys {
				items = append(items, multi.Lock(m, key))
			}
			l, err := multi.Acquire(ctx, items...)
			if err != nil {
				return err
			}
			return l.Release()
		}),
		crowd("nested", func(ctx context.Context, m *mutex.Mutex, keys []string) error {
			return nested(ctx, m, slices.Sorted(slices.Values(keys)))
		}))
}
