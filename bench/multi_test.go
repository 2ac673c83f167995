package bench

import (
	"context"
	"errors"
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

// 64 goroutines of four clients want two to four of eight locks each, for as long as it takes or
// within a budget of 20 ms: with multi, which takes any order, and with locks that are taken one
// after the other in the right order.
func BenchmarkSeveral(b *testing.B) {
	for _, budget := range []time.Duration{0, 20 * time.Millisecond} {
		b.Run("budget="+budget.String(), func(b *testing.B) {
			srv := harness.StartOwn(b)
			var handles []*mutex.Mutex
			for range clients {
				handles = append(handles, locks(b, srv.Client()))
			}
			do := func(take func(ctx context.Context, m *mutex.Mutex, keys []string) (func(), error)) func(context.Context, int) error {
				return func(ctx context.Context, i int) error {
					keys := make([]string, 0, 4)
					for _, n := range rand.Perm(8)[:2+rand.IntN(3)] {
						keys = append(keys, strconv.Itoa(n))
					}
					for {
						within, cancel := ctx, func() {}
						if budget > 0 {
							within, cancel = context.WithTimeout(ctx, budget)
						}
						free, err := take(within, handles[i%clients], keys)
						cancel()
						if err == nil {
							free()
						}
						if err == nil || budget == 0 || !errors.Is(err, context.DeadlineExceeded) {
							return err
						}
					}
				}
			}
			harness.InterleaveCrowds(b, clients*goroutines, 500*time.Millisecond,
				harness.Crowd{Name: "multi", Pair: do(func(ctx context.Context, m *mutex.Mutex, keys []string) (func(), error) {
					var items []multi.Item
					for _, key := range keys {
						items = append(items, multi.Lock(m, key))
					}
					l, err := multi.Acquire(ctx, items...)
					if err != nil {
						return nil, err
					}
					return func() { redistest.WantErr(b, l.Release()) }, nil
				})},
				harness.Crowd{Name: "nested", Pair: do(func(ctx context.Context, m *mutex.Mutex, keys []string) (func(), error) {
					var held []*mutex.Lock
					free := func() {
						for _, l := range slices.Backward(held) {
							redistest.WantErr(b, l.Unlock())
						}
					}
					slices.Sort(keys)
					for _, key := range keys {
						l, err := m.Lock(ctx, key)
						if err != nil {
							free()
							return nil, err
						}
						held = append(held, l)
					}
					return free, nil
				})})
		})
	}
}
