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

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Callers of two processes give up at random moments: the others are served, and
// nothing is left, in the process or in Redis.
func TestFaultCallersCancelled(t *testing.T) {
	redistest.NoLeaks(t)
	const keys = 8
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	seed, _ := harness.Seeded(t)
	groups := []*singleflight.Group[string]{s.group(srv.Client()), s.group(srv.Client())}
	rounds := harness.Rounds(t, 2000)
	var served, gaveUp atomic.Int32
	var workers sync.WaitGroup
	for w := range keys {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		key := fmt.Sprint("k", w)
		workers.Go(func() {
			for range rounds / keys {
				var all sync.WaitGroup
				for range 1 + rng.IntN(6) {
					us := func(most int) time.Duration { return time.Duration(rng.IntN(most)) * time.Microsecond }
					from, after, load := us(4000), us(6000), us(4000)
					g, stays, obeys := groups[rng.IntN(2)], rng.IntN(4) == 0, rng.IntN(2) == 0
					all.Go(func() {
						time.Sleep(from)
						ctx, cancel := context.WithCancel(context.Background())
						defer cancel()
						if !stays {
							defer time.AfterFunc(after, cancel).Stop()
						}
						v, err := g.Do(ctx, key, func(ctx context.Context) (string, error) {
							select {
							case <-time.After(load):
							case <-ctx.Done():
								if obeys {
									return "", ctx.Err()
								}
							}
							return "value", nil
						})
						switch {
						case err == nil && v == "value":
							served.Add(1)
						case errors.Is(err, context.Canceled) && ctx.Err() != nil:
							gaveUp.Add(1)
						default:
							t.Errorf("a caller (stays: %v) got %q, %v", stays, v, err)
						}
					})
				}
				all.Wait()
				if err := groups[0].Invalidate(context.Background(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	for w := range keys {
		s.on(t, fmt.Sprint("k", w)).clean(6 * time.Second)
	}
	t.Logf("%d callers were served, %d gave up", served.Load(), gaveUp.Load())
}

// Thousands wait for one load and give up at once: they return while the load, which
// does not heed its ctx, still runs, and its ctx ends.
func TestFaultManyCancelledAtOnce(t *testing.T) {
	redistest.NoLeaks(t)
	const callers = 5000
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	g := s.group(srv.Client())
	warmUp(t, g)
	began, ended, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	load := func(ctx context.Context) (string, error) {
		close(began)
		<-ctx.Done()
		close(ended)
		<-returned
		return "", ctx.Err()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	var called atomic.Int32
	for range callers {
		all.Go(func() {
			called.Add(1)
			if _, err := g.Do(ctx, s.Key, load); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller got %v", err)
			}
		})
	}
	harness.Got(t, 10*time.Second, "the load", began)
	harness.Until(t, 10*time.Second, func() error {
		if n := called.Load(); n != callers {
			return fmt.Errorf("%d of %d have called", n, callers)
		}
		return nil
	})
	// Most have looked and joined by then. The others return as soon.
	time.Sleep(300 * time.Millisecond)
	at := time.Now()
	cancel()
	go func() {
		all.Wait()
		close(returned)
	}()
	harness.Got(t, 30*time.Second, "the return of all callers", returned)
	took := time.Since(at)
	harness.Got(t, 30*time.Second, "the end of the loader's ctx", ended)
	t.Logf("%d callers returned within %v, the load's ctx ended after %v", callers, took, time.Since(at))
	s.clean(10 * time.Second)
}
