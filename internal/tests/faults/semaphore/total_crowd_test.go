package semaphore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Ten thousand requests of one tenant wait. The first request of another tenant is
// granted when the next permit is given back: how long that takes is no longer than with
// ten that wait, but for what the server needs for the longer queue.
func TestTenThousandWaitersDelayNoOtherTenant(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		const total, most, hold = 10, 50 * time.Millisecond, 5 * time.Millisecond
		name := redistest.Name(t)
		open := func() *semaphore.Semaphore {
			h, err := semaphore.New(target.Client(t), semaphore.Config{Name: name, Limit: total, Total: total, TTL: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { harness.CloseWithin(t, closeBound, h) })
			return h
		}
		greedy, modest := open(), open()
		admin, queue := target.Admin(t), fmt.Sprintf("leasehold:sem:{%s}:queue", name)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		// Its turns end by themselves, so that permits are given back all the time.
		waiting := func(n int) {
			for range n {
				go func() {
					for ctx.Err() == nil {
						l, err := greedy.Acquire(ctx, "greedy")
						if err != nil {
							return
						}
						time.Sleep(hold)
						_ = l.Release()
					}
				}()
			}
		}
		begun := 0
		behind := func(n int) time.Duration {
			for begun < n {
				wave := min(500, n-begun)
				waiting(wave)
				begun += wave
				want := int64(begun * 9 / 10) // the others are between a release and their next place
				if begun < 500 {
					want = int64(begun / 4) // half of them hold permits
				}
				harness.Until(t, 30*time.Second, func() error {
					if queued := admin.ZCard(t.Context(), queue).Val(); queued < want {
						return fmt.Errorf("%d of %d wait; want %d", queued, begun, want)
					}
					return nil
				})
			}
			var waits []time.Duration
			for i := range 20 {
				key, began := fmt.Sprintf("modest%d.%d", n, i), time.Now()
				l, err := modest.Acquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				waits = append(waits, time.Since(began))
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
			slices.Sort(waits)
			t.Logf("behind %d waiters: p50 %v, worst %v", n, waits[len(waits)/2], waits[len(waits)-1])
			return waits[len(waits)/2]
		}
		few, many := behind(20), behind(10_000)
		if many-few > most {
			t.Errorf("behind 10,000 waiters of another tenant a request waited %v, behind 20 of them %v; want %v more at most", many, few, most)
		}
	})
}
