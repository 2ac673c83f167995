package singleflight

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

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
		subBubble(t, what, func(f *fixture, _ *miniredis.Miniredis) {
			mod := func(c *singleflight.Config[string]) { c.LoadTimeout, c.LeaseTTL = 5*time.Second, time.Second }
			g, _ := f.open(mod)
			other, _ := f.open(mod)
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
			if d := time.Since(began); d != 5*time.Second || !l.over() || context.Cause(l.ctx) != singleflight.ErrLoadTimeout {
				f.Errorf("after %v, ctx ended by %v", d, context.Cause(l.ctx))
			}
			redistest.Expect(f, fetch(f, f.Context(), other, "k", gives("v")).got().Source, singleflight.Loaded, "it came from %v")
		})
	}
}

// A loader that says "deadline exceeded" at the very moment has timed out all the
// same. Which of the two is noticed first is a matter of chance.
func TestLoadTimeoutIsNoDeadline(t *testing.T) {
	t.Parallel()
	rdb, wire := nowhere(t), &harness.Wire{Patience: clientPatience}
	rdb.AddHook(wire)
	wire.Cut()
	g := group(t, rdb, locally, func(c *singleflight.Config[string]) { c.LoadTimeout = 5 * time.Millisecond })
	for range 10 {
		var all []*pending[string]
		for i := range 200 {
			all = append(all, fetch(t, t.Context(), g, strconv.Itoa(i), func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}))
		}
		for _, p := range all {
			redistest.WantErr(t, p.failed(), singleflight.ErrLoadTimeout, redistest.Not(context.DeadlineExceeded))
		}
	}
}

// A loader's own deadline is the loader's error, not a time-out of ours.
func TestLoadersOwnDeadline(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.LoadTimeout = time.Minute })
		other, _ := f.open()
		o := newOrigin(f)
		first := fetch(f, f.Context(), g, "k", o.load)
		l := o.next(f)
		waits := fetch(f, f.Context(), other, "k", never(f))
		synctest.Wait()
		l.fails(context.DeadlineExceeded)
		redistest.WantErr(f, first.failed(), context.DeadlineExceeded, redistest.Not(singleflight.ErrLoadTimeout))
		err := waits.failed()
		redistest.WantErr(f, err, redistest.Not(singleflight.ErrLoadTimeout, context.DeadlineExceeded), redistest.Says("deadline exceeded"))
	})
}

// At SoftTimeout a DoMany serves the stale values that it has, and waits
// on only for the keys of which it has none.
func TestSoftTimeoutOfDoMany(t *testing.T) {
	for what, mod := range map[string]config{"StaleFor": staleFor, "StaleIfError": staleIfError} {
		subBubble(t, what, func(f *fixture, _ *miniredis.Miniredis) {
			g, _ := f.open(mod, func(c *singleflight.Config[string]) { c.SoftTimeout = time.Second })
			f.stalled(g, "stale")
			b := newBatches()
			b.gate = make(chan struct{})
			all := doMany(f, f.Context(), g, []string{"first", "stale", "last"}, b)
			<-b.began
			time.Sleep(5 * time.Second)
			close(b.gate)
			redistest.NoError(f, all.got("first", "FIRST", "stale", "old", "last", "LAST"))
		})
	}
}
