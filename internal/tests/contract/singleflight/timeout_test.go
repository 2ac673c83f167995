package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// LoadTimeout ends the loader's ctx, and the load fails with an error of its own,
// whatever the loader makes of it: in this process and in another.
func TestLoadTimeout(t *testing.T) {
	for what, load := range map[string]func(o *origin) loader{
		"obeys":   func(o *origin) loader { return o.obedient },
		"ignores": func(o *origin) loader { return o.load },
		"says deadline exceeded": func(o *origin) loader {
			return func(ctx context.Context) (string, error) {
				_, _ = o.obedient(ctx)
				return "", ctx.Err()
			}
		},
	} {
		subBubble(t, what, func(f *fixture) {
			mod := func(c *singleflight.Config[string]) { c.LoadTimeout, c.LeaseTTL = 5*time.Second, time.Second }
			g, other := f.two(mod)
			o := newOrigin(f)
			began := time.Now()
			all := []*pending[string]{fetch(f, f.Context(), g, "k", load(o))}
			l := o.next(f)
			defer l.returns("too late")
			all = append(all, fetch(f, f.Context(), g, "k", never(f)), fetch(f, f.Context(), other, "k", never(f)))
			for i, p := range all {
				err := p.failed()
				redistest.WantErr(f, err, singleflight.ErrLoadTimeout)
				redistest.WantNot(f, err, context.DeadlineExceeded, context.Canceled, leasehold.ErrUnavailable)
				remote := new(singleflight.RemoteError)
				redistest.Check(f, errors.As(err, &remote) == (i == 2), "caller %d: %v", i, err)
			}
			redistest.Expect(f, time.Since(began), 5*time.Second, "it failed after %v")
			redistest.Expect(f, context.Cause(l.ctx), singleflight.ErrLoadTimeout, "the ctx ended by %v")
			redistest.Expect(f, fetch(f, f.Context(), other, "k", gives("v")).got().Source, singleflight.Loaded, "it came from %v")
		})
	}
}

// A loader's own deadline is the loader's error, not a time-out of ours.
func TestLoadersOwnDeadline(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.LoadTimeout = time.Minute })
		other, _ := f.open()
		first, l, _ := f.loading(g, "k")
		waits := fetch(f, f.Context(), other, "k", never(f))
		l.fails(context.DeadlineExceeded)
		redistest.WantErr(f, first.failed(), context.DeadlineExceeded, redistest.Not(singleflight.ErrLoadTimeout))
		err := waits.failed()
		redistest.WantErr(f, err, redistest.Not(singleflight.ErrLoadTimeout, context.DeadlineExceeded), redistest.Says("deadline exceeded"))
	})
}

// Whatever a call waits for, it returns when its ctx ends, and leaves nothing behind: not in the queue, nor a lease.
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
			subBubble(t, fmt.Sprint(what, ", many: ", many), func(f *fixture) {
				g, other, w := f.pair(maxLoads(1))
				key, load := put(world{f, g, w, other, newOrigin(f)})
				ctx, cancel := context.WithCancel(f.Context())
				call := harness.Start(f.T, func() (string, error) {
					if !many {
						return g.Do(ctx, key, load)
					}
					return "", redistest.ErrorOf(g.DoMany(ctx, []string{key}, func(ctx context.Context, _ []string) (map[string]string, error) {
						v, err := load(ctx)
						return map[string]string{key: v}, err
					}))
				})
				synctest.Wait()
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				cancel()
				began := time.Now()
				redistest.WantErr(f, call.Failed(), context.Canceled, redistest.Says(f.Family+"/"+key))
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

// A loader that says "deadline exceeded" at the very moment has timed out all the
// same. Which of the two is noticed first is a matter of chance.
func TestLoadTimeoutIsNoDeadline(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(locally, func(c *singleflight.Config[string]) { c.LoadTimeout = 5 * time.Millisecond })
		wire.Cut()
		for range 10 {
			var all []*pending[string]
			for i := range 200 {
				all = append(all, fetch(f, f.Context(), g, strconv.Itoa(i), func(ctx context.Context) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				}))
			}
			for _, p := range all {
				redistest.WantErr(f, p.failed(), singleflight.ErrLoadTimeout, redistest.Not(context.DeadlineExceeded))
			}
		}
	})
}
