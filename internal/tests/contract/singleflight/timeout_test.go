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
				if remote := new(singleflight.RemoteError); errors.As(err, &remote) != (i == 2) {
					f.Errorf("caller %d: %v", i, err)
				}
			}
			if d := time.Since(began); d != 5*time.Second || !l.over() || context.Cause(l.ctx) != singleflight.ErrLoadTimeout {
				f.Errorf("after %v, ctx ended by %v", d, context.Cause(l.ctx))
			}
			if r := fetch(f, f.Context(), other, "k", gives("v")).got(); r.Source != singleflight.Loaded {
				f.Errorf("%+v", r)
			}
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
			err := p.failed()
			redistest.WantErr(t, err, singleflight.ErrLoadTimeout)
			redistest.WantNot(t, err, context.DeadlineExceeded)
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
		err := first.failed()
		redistest.WantErr(f, err, context.DeadlineExceeded)
		redistest.WantNot(f, err, singleflight.ErrLoadTimeout)
		err = waits.failed()
		redistest.WantText(f, err, "deadline exceeded")
		redistest.WantNot(f, err, singleflight.ErrLoadTimeout, context.DeadlineExceeded)
	})
}
