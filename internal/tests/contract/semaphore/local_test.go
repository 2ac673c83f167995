package semaphore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func localFor(d time.Duration) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.LocalFor = d }
}

func TestLocalForIsRefusedWithATotal(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	_, err := semaphore.New(rdb, semaphore.Config{Name: "f", Limit: 1, Total: 2, LocalFor: time.Millisecond})
	redistest.WantText(t, err, "LocalFor is 1ms, and Total is 2; want one of them to be 0")
}

// A process holds as many leases as the limit has room for, and its other callers wait in
// it, without places in Redis; permits go round in the order of the calls.
func TestPermitsAreHandedRoundInAProcess(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		s, _ := f.open(limit(4), localFor(time.Second))
		first, second := f.take(s, "k", 2), f.take(s, "k", 2)
		var waiters []*waiting
		for range 4 {
			waiters = append(waiters, harness.Start(f.T, func() (*semaphore.Lease, error) { return s.AcquireN(f.Context(), "k", 2) }))
			synctest.Wait()
		}
		if n := f.Queued("k"); n != 0 {
			f.Fatalf("%d are queued in Redis", n)
		}
		_, err := s.TryAcquireN(f.Context(), "k", 2)
		redistest.WantErr(f, err, leasehold.ErrBusy)
		for i, l := range []*semaphore.Lease{second, first} {
			release(f, l)
			next := waiters[i].Got()
			if next.ID() != l.ID() || waiters[i+1].Ended() {
				f.Fatalf("waiter %d has lease %s, want %s", i, next.ID(), l.ID())
			}
		}
		// A request of another weight is another process's, as far as the line goes.
		heavy := f.wait(f.Context(), s, "k", 1)
		for _, w := range waiters {
			release(f, w.Got())
		}
		release(f, heavy.Got())
	})
}

// Several processes with and without local turns never hold more than the limit, and all
// callers are served.
func TestTheLimitHoldsWithMixedLocalFor(t *testing.T) {
	each(t, func(f *fixture) {
		const most, goroutines, turns = 3, 8, 15
		var all sync.WaitGroup
		var mu sync.Mutex
		held := 0
		for _, d := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond} {
			s, _ := f.open(limit(most), localFor(d))
			for range goroutines {
				all.Go(func() {
					for range turns {
						err := s.Do(f.Context(), "k", func(context.Context) error {
							mu.Lock()
							held++
							if held > most {
								f.Errorf("%d are held, the limit is %d", held, most)
							}
							mu.Unlock()
							time.Sleep(200 * time.Microsecond)
							mu.Lock()
							held--
							mu.Unlock()
							return nil
						})
						if err != nil {
							f.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		redistest.Eventually(f, "nothing is held", func() bool { return len(f.Held("k")) == 0 && f.Queued("k") == 0 })
	})
}

// A limit that is raised at run time is used by a process that has a lease already, and
// one that is lowered takes leases away from it, though nobody else waits.
func TestALimitSetAtRunTimeCountsInAProcess(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		s, _ := f.open(limit(2), localFor(50*time.Millisecond))
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = s.Do(ctx, "k", func(context.Context) error { time.Sleep(3 * time.Millisecond); return nil })
				}
			})
		}
		for _, n := range []int{2, 6, 1, 4} {
			if err := s.SetLimit(f.Context(), "k", n); err != nil {
				f.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // LocalFor, a hold, and a few calls
			if held := len(f.Held("k")); held != n {
				f.Errorf("%d are held, the limit is %d", held, n)
			}
		}
	})
}

// MaxWaiters counts the callers that wait, not those that Redis is about to grant to.
func TestMaxWaitersIsNotForPermitsThatAreFree(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		s, _ := f.open(limit(4), localFor(50*time.Millisecond), func(c *semaphore.Config) { c.MaxWaiters = 1 })
		var callers []*waiting
		for range 4 {
			callers = append(callers, harness.Start(f.T, func() (*semaphore.Lease, error) { return s.Acquire(f.Context(), "k") }))
		}
		var held []*semaphore.Lease
		for _, w := range callers {
			held = append(held, w.Got())
		}
		waiter := harness.Start(f.T, func() (*semaphore.Lease, error) { return s.Acquire(f.Context(), "k") })
		time.Sleep(5 * time.Millisecond)
		_, err := s.Acquire(f.Context(), "k")
		redistest.WantErr(f, err, leasehold.ErrQueueFull)
		for _, l := range held {
			release(f, l)
		}
		release(f, waiter.Got())
	})
}
