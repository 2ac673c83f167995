package singleflight

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A loader that asks for its own key gets an error at once, however it asks.
func TestLoaderThatAsksForItsOwnKey(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open()
		r := fetch(f, f.Context(), g, "k", func(ctx context.Context) (string, error) {
			_, err := g.Do(ctx, "k", never(f))
			redistest.WantErr(f, err, singleflight.ErrLoadCycle)
			_, err = g.DoMany(ctx, []string{"k"}, newBatches().load)
			redistest.WantErr(f, err, singleflight.ErrLoadCycle)
			return g.Do(ctx, "inner", gives("v"))
		}).got()
		if r.Value != "v" {
			f.Errorf("%+v", r)
		}
	})
}

// Two loads of a process ask for each other's key: whichever asks last gets an error at
// once, and the other one its value.
func TestLoadsThatAskForEachOther(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open()
		var runs sync.WaitGroup
		runs.Add(2)
		var refused atomic.Int32
		ask := func(key string) loader {
			return func(ctx context.Context) (string, error) {
				runs.Done()
				runs.Wait()
				_, err := g.Do(ctx, key, never(f))
				if errors.Is(err, singleflight.ErrLoadCycle) {
					refused.Add(1)
				}
				return "v", nil
			}
		}
		a, b := fetch(f, f.Context(), g, "a", ask("b")), fetch(f, f.Context(), g, "b", ask("a"))
		if ra, rb := a.got(), b.got(); ra.Value != "v" || rb.Value != "v" || refused.Load() != 1 {
			f.Errorf("%+v, %+v, %d refused", ra, rb, refused.Load())
		}
	})
}

// A cycle through another process ends once the callers have left, and the keys can be
// loaded again.
func TestCycleThroughAnotherProcessUnwinds(t *testing.T) {
	each(t, func(f *fixture) {
		one, _ := f.open()
		two, _ := f.open()
		runs := make(chan struct{}, 2)
		meet := make(chan struct{})
		ctx, leave := context.WithCancel(f.Context())
		ask := func(g *singleflight.Group[string], key string) loader {
			return func(ctx context.Context) (string, error) {
				runs <- struct{}{}
				<-meet
				return g.Do(ctx, key, never(f))
			}
		}
		a := fetch(f, ctx, one, "a", ask(one, "b"))
		b := fetch(f, ctx, two, "b", ask(two, "a"))
		redistest.Get(f, "a load", runs)
		redistest.Get(f, "the other load", runs)
		close(meet)
		redistest.Eventually(f, "both to wait", func() bool { return f.Queued("a") == 1 && f.Queued("b") == 1 })
		leave()
		a.failed()
		b.failed()
		redistest.Eventually(f, "the leases to be given back", func() bool {
			return !inspect(f, one, "a").Loading && !inspect(f, one, "b").Loading
		})
		if r := fetch(f, f.Context(), two, "a", gives("v")).got(); r.Value != "v" || r.Source != singleflight.Loaded {
			f.Errorf("%+v", r)
		}
	})
}
