package singleflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A process closes its group at a random moment of loads and waits. Its callers
// get a value or ErrClosed; those of another process, which waits or loads, get
// their value soon, since the lease is given back; nothing is left.
func TestFaultCloseAtRandomMoments(t *testing.T) {
	redistest.NoLeaks(t)
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	seed, _ := harness.Seeded(t)
	rdb := srv.Client()
	long := func(c *singleflight.Config[string]) { c.LeaseTTL = 10 * time.Second } // nothing comes by its end
	other := s.group(srv.Client(), long)
	warmUp(t, other)
	rounds := harness.Rounds(t, 200)
	var closed, served, asked atomic.Int32
	var slowest atomic.Int64
	var workers sync.WaitGroup
	for w := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		workers.Go(func() {
			for i := range rounds / 4 {
				key := fmt.Sprintf("k%d-%d", w, i)
				g := openGroup(t, rdb, s.Family, long)
				span := time.Duration(rng.IntN(10_000)) * time.Microsecond
				load := func(ctx context.Context) (string, error) {
					select {
					case <-time.After(span):
						return "value", nil
					case <-ctx.Done():
						return "", ctx.Err()
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				var all sync.WaitGroup
				for range 3 {
					after := time.Duration(rng.IntN(5000)) * time.Microsecond
					all.Go(func() {
						time.Sleep(after)
						switch v, err := g.Do(ctx, key, load); {
						case err == nil && v == "value":
							served.Add(1)
						case errors.Is(err, leasehold.ErrClosed):
							closed.Add(1)
						default:
							t.Errorf("a caller of the closed group got %q, %v", v, err)
						}
					})
				}
				after, until := time.Duration(rng.IntN(5000))*time.Microsecond, time.Duration(rng.IntN(10_000))*time.Microsecond
				all.Go(func() {
					time.Sleep(after)
					at := time.Now()
					if v, err := other.Do(ctx, key, load); err != nil || v != "value" {
						t.Errorf("a caller of the other group got %q, %v", v, err)
					}
					if time.Since(at) > time.Second {
						asked.Add(1)
					}
					for took := int64(time.Since(at)); ; {
						if most := slowest.Load(); took <= most || slowest.CompareAndSwap(most, took) {
							break
						}
					}
				})
				time.Sleep(until)
				harness.CloseWithin(t, closeBound, g)
				all.Wait()
				cancel()
				s.on(t, key).clean(0)
			}
		})
	}
	workers.Wait()
	took := time.Duration(slowest.Load())
	t.Logf("%d calls were closed, %d served; the other group's slowest call took %v", closed.Load(), served.Load(), took)
	if took > 1500*time.Millisecond+harness.Slack {
		t.Errorf("a call beside a group that was closed took %v", took)
	}
	// The waiting caller is told that the lease is free.
	if int(asked.Load()) > rounds/20 {
		t.Errorf("%d calls of %d took more than a second", asked.Load(), rounds)
	}
}

// Subscriptions are killed all the time: the waiting caller gets its value all the same,
// no later than by asking.
func TestFaultSubscriptionsKilled(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	seed, _ := harness.Seeded(t)
	groups := []*singleflight.Group[string]{s.group(srv.Client()), s.group(srv.Client()), s.group(srv.Client())}
	end := time.Now().Add(harness.Soak(t, 3*time.Second))
	var loads, calls, asked atomic.Int32
	var slowest atomic.Int64
	var workers sync.WaitGroup
	for w := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		workers.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				key := fmt.Sprintf("k%d-%d", w, i)
				span := time.Duration(rng.IntN(60)) * time.Millisecond
				loads.Add(-1)
				var all sync.WaitGroup
				for _, g := range groups {
					all.Go(func() {
						at := time.Now()
						v, err := g.Do(context.Background(), key, func(context.Context) (string, error) {
							loads.Add(1)
							time.Sleep(span)
							return key, nil
						})
						if err != nil || v != key {
							t.Errorf("a caller got %q, %v", v, err)
						}
						calls.Add(1)
						if time.Since(at)-span > time.Second {
							asked.Add(1)
						}
						for late := int64(time.Since(at) - span); ; {
							if most := slowest.Load(); late <= most || slowest.CompareAndSwap(most, late) {
								break
							}
						}
					})
				}
				all.Wait()
				s.on(t, key).clean(0)
			}
		})
	}
	killed := int64(0)
	for time.Now().Before(end) {
		n, err := s.RDB.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result()
		if err != nil {
			t.Error(err)
		}
		killed += n
		time.Sleep(15 * time.Millisecond)
	}
	workers.Wait()
	late := time.Duration(slowest.Load())
	t.Logf("%d subscriptions killed, %d calls; the slowest took %v longer than its load, %d more than a second", killed, calls.Load(), late, asked.Load())
	if n := loads.Load(); n != 0 {
		t.Errorf("%d loads more than keys", n)
	}
	if late > 1500*time.Millisecond+harness.Slack {
		t.Errorf("a call took %v longer than its load", late)
	}
	// A process with a new subscription asks at once.
	if asked.Load() > calls.Load()/20 {
		t.Errorf("%d calls of %d took more than a second longer than their loads", asked.Load(), calls.Load())
	}
}
