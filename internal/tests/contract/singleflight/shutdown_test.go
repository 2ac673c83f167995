package singleflight

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// shutDown calls Shutdown in another goroutine of a bubble, and returns once it waits.
func shutDown(ctx context.Context, g *singleflight.Group[string]) <-chan error {
	done := make(chan error, 1)
	go func() { done <- g.Shutdown(ctx) }()
	time.Sleep(time.Millisecond)
	synctest.Wait()
	return done
}

// A load goes on, for its callers here and elsewhere. Shutdown refuses all other waiters.
func TestShutdownLetsLoadsFinish(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		one := func(c *singleflight.Config[string]) { c.MaxLoads = 2 }
		g, _ := f.open(one)
		other, _ := f.open(one)
		here, there := newOrigin(f), newOrigin(f)
		first := fetch(f, f.Context(), g, "k", here.obedient)
		l := here.next(f)
		joins := fetch(f, f.Context(), g, "k", here.obedient)
		elsewhere := fetch(f, f.Context(), other, "k", never(f))
		theirs := fetch(f, f.Context(), other, "theirs", there.load)
		m := there.next(f)
		waits := fetch(f, f.Context(), g, "theirs", never(f))
		permit := fetch(f, f.Context(), g, "permit", never(f)) // both permits are taken
		time.Sleep(time.Second)
		synctest.Wait()
		done := shutDown(f.Context(), g)
		redistest.WantErr(f, waits.failed(), leasehold.ErrClosed)
		redistest.WantErr(f, permit.failed(), leasehold.ErrClosed)
		_, err := g.Do(f.Context(), "new", never(f))
		redistest.WantErr(f, err, leasehold.ErrClosed)
		time.Sleep(time.Minute) // longer than LeaseTTL: the lease is renewed
		select {
		case err := <-done:
			f.Fatalf("Shutdown returned %v beside a load", err)
		default:
		}
		redistest.CheckNow(f, !l.over(), "the load has ended: %v", context.Cause(l.ctx))
		l.returns("v")
		for _, caller := range []*pending[string]{first, joins, elsewhere} {
			caller.wantValue("v")
		}
		redistest.NoError(f, redistest.Get(f, "Shutdown", done))
		wantStored(f, other, "k", "v")
		m.returns("v")
		theirs.got()
		fetch(f, f.Context(), other, "permit", gives("w")).got() // nothing is left of the refused call
	})
}

// When its ctx ends, Shutdown is a Close.
func TestShutdownIsBoundedByItsCtx(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open()
		o := newOrigin(f)
		first := fetch(f, f.Context(), g, "k", o.obedient)
		l := o.next(f)
		ctx, cancel := context.WithTimeout(f.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		err := redistest.Get(f, "Shutdown", shutDown(ctx, g))
		redistest.Expect(f, time.Since(began), 3*time.Second, "it took %v")
		redistest.WantErr(f, err, context.DeadlineExceeded)
		redistest.WantErr(f, first.failed(), leasehold.ErrClosed)
		redistest.Get(f, "the end of the load's ctx", l.ctx.Done())
		redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrClosed)
		redistest.NoError(f, g.Close(f.Context()))
	})
}
