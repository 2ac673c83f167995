package singleflight

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Whatever a call waits for, it returns when its ctx ends, and leaves nothing
// behind: not in the queue, nor a lease.
func TestCtxEndsWhereverACallIs(t *testing.T) {
	type world struct {
		f     *fixture
		g     *singleflight.Group[string]
		w     *harness.Wire
		other *singleflight.Group[string]
		o     *origin
	}
	for what, put := range map[string]func(x world) (key string, load loader){
		"asking for the clock": func(x world) (string, loader) { x.w.Stall("time"); return "k", never(x.f) },
		"taking the lease":     func(x world) (string, loader) { x.w.Stall("load enter"); return "k", never(x.f) },
		"hearing of the lease": func(x world) (string, loader) { x.w.StallReplies("load enter"); return "k", never(x.f) },
		"trying again":         func(x world) (string, loader) { x.w.CutOff("load enter"); return "k", never(x.f) },
		"loading":              func(x world) (string, loader) { return "k", x.o.obedient },
		"publishing":           func(x world) (string, loader) { x.w.Stall("load publish"); return "k", gives("v") },
		"waiting for another": func(x world) (string, loader) {
			fetch(x.f, x.f.Context(), x.other, "k", x.o.load)
			x.o.next(x.f)
			return "k", never(x.f)
		},
		"waiting for a permit": func(x world) (string, loader) {
			fetch(x.f, x.f.Context(), x.other, "else", x.o.load)
			x.o.next(x.f)
			return "k", never(x.f)
		},
	} {
		for _, many := range []bool{false, true} {
			name := what
			if many {
				name += ", many"
			}
			subBubble(t, name, func(f *fixture, _ *miniredis.Miniredis) {
				g, w := f.open(maxLoads(1))
				other, _ := f.open(maxLoads(1))
				key, load := put(world{f, g, w, other, newOrigin(f)})
				ctx, cancel := context.WithCancel(f.Context())
				call := func() error { _, err := g.Do(ctx, key, load); return err }
				if many {
					call = func() error {
						_, err := g.DoMany(ctx, []string{key}, func(ctx context.Context, keys []string) (map[string]string, error) {
							v, err := load(ctx)
							return map[string]string{key: v}, err
						})
						return err
					}
				}
				ended := make(chan error, 1)
				go func() { ended <- call() }()
				synctest.Wait()
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				cancel()
				began := time.Now()
				redistest.WantErr(f, redistest.Get(f, "the call", ended), context.Canceled, redistest.Says(f.Family+"/"+key))
				redistest.Expect(f, time.Since(began), 0, "it returned after %v")
				w.Heal()
				time.Sleep(20 * time.Second)
				held := int64(0)
				if what == "waiting for another" {
					held = 1 // the other's
				}
				n := f.RDB.ZCard(f.Context(), f.Part(key, "holders")).Val()
				redistest.Check(f, n == held && f.Queued(key) == 0, "%d leases are held, %d wait", n, f.Queued(key))
			})
		}
	}
}

// A ctx that has ended sends nothing.
func TestCtxThatHasEnded(t *testing.T) {
	some(t, func(f *fixture) {
		g, wire := f.open(locally)
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		redistest.WantErr(f, redistest.ErrorOf(g.Do(ctx, "k", never(f))), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		redistest.WantErr(f, redistest.ErrorOf(g.Fetch(ctx, "k", never(f))), context.Canceled)
		_, _, err := g.Peek(ctx, "k")
		redistest.WantErr(f, err, context.Canceled)
		redistest.WantErr(f, redistest.ErrorOf(g.Inspect(ctx, "k")), context.Canceled)
		redistest.WantErr(f, g.Invalidate(ctx, "k"), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		redistest.WantErr(f, g.Put(ctx, "k", "v"), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		redistest.WantErr(f, redistest.ErrorOf(g.DoMany(ctx, []string{"k"}, newBatches().load)), context.Canceled)
		redistest.Expect(f, wire.Sent(), 0, "%d commands were sent")
	})
}

// A deadline is told as one, and as the caller's own.
func TestDeadlineOfACaller(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.LoadTimeout = time.Hour })
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		o := newOrigin(f)
		p := fetch(f, ctx, g, "k", o.obedient)
		o.next(f)
		<-p.done
		err := p.failed()
		redistest.WantErr(f, err, context.DeadlineExceeded, redistest.Not(singleflight.ErrLoadTimeout, leasehold.ErrUnavailable, leasehold.ErrBusy))
	})
}
