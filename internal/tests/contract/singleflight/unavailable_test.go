package singleflight

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// withoutRedis are the steps of a load at which Redis can be away.
var withoutRedis = map[string]func(w *harness.Wire){
	"no lookup": (*harness.Wire).Cut,
	"no lease":  func(w *harness.Wire) { w.CutOff("load enter") },
}

func locally(c *singleflight.Config[string]) { c.OnUnavailable = singleflight.LoadLocally }

// LoadLocally: nothing is stored, and a failure is shared.
func TestUnavailableLoadsLocally(t *testing.T) {
	for what, cut := range withoutRedis {
		subBubble(t, what, func(f *fixture) {
			g, wire := f.open(locally)
			o := newOrigin(f)
			fetch(f, f.Context(), g, "warm", gives("v")).got() // the server's clock is known
			cut(wire)
			holds, before := begin(f, f.Context(), g, "k", o, o.load)
			var all []*pending[string]
			for range 10 {
				all = append(all, fetch(f, f.Context(), g, "k", o.load))
			}
			settleAway()
			before.returns("before")
			holds.wantValue("before")
			o.next(f).fails(errBoom)
			for _, p := range all {
				redistest.WantErr(f, p.failed(), errBoom)
			}
			redistest.Expect(f, o.loads.Load(), 2, "%d loads")
			wire.Heal()
			wantNothing(f, g, "k")
			fetch(f, f.Context(), g, "k", gives("back")).wantValue("back")
		})
	}
}

// LoadLocally: a local load ends when its last caller has left, and on Close, which also ends the wait for the next one.
func TestLocalLoadEnds(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(locally)
		o := newOrigin(f)
		wire.Cut()
		ctx, cancel := context.WithCancel(f.Context())
		first, second := fetch(f, ctx, g, "k", o.obedient), fetch(f, ctx, g, "k", o.obedient)
		l := o.next(f)
		synctest.Wait() // until both wait for it
		cancel()
		redistest.WantErr(f, first.failed(), context.Canceled)
		redistest.WantErr(f, second.failed(), context.Canceled)
		synctest.Wait()
		redistest.Check(f, l.over(), "the load goes on for nobody")
		third := fetch(f, f.Context(), g, "k", o.obedient)
		l = o.next(f)
		later := fetch(f, f.Context(), g, "k", o.obedient)
		o.wantNoLoad(f)
		redistest.NoError(f, g.Close(f.Context()))
		redistest.WantErr(f, third.failed(), leasehold.ErrClosed)
		redistest.WantErr(f, later.failed(), leasehold.ErrClosed)
		redistest.Check(f, l.over(), "the load goes on after Close")
	})
}

// A load without a lease, since Redis could not be asked, is not joined by a
// caller that could ask Redis: it may have been invalidated before that one came.
func TestLocalLoadIsNotJoinedByACallerThatReachesRedis(t *testing.T) {
	for what, cut := range withoutRedis {
		subBubble(t, what, func(f *fixture) {
			g, wire := f.open(locally)
			other, _ := f.open()
			o := newOrigin(f)
			fetch(f, f.Context(), g, "warm", gives("v")).got()
			cut(wire)
			first, l := begin(f, f.Context(), g, "k", o, o.load)
			wire.Heal()
			redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
			after := fetch(f, f.Context(), g, "k", gives("new"))
			l.returns("old")
			first.got()
			after.wantValue("new")
		})
	}
}

// LoadLocally: a refresh that nobody waits for does without where Redis can't be asked: its result would reach nobody.
func TestUnavailableRefreshLoadsNothing(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(locally, staleFor)
		f.stalled(g, "k")
		wire.CutOff("load enter")
		fetch(f, f.Context(), g, "k", never(f)).want("old", singleflight.Stale)
		time.Sleep(5 * time.Second) // until the refresh has given up
		wire.Heal()
		fetch(f, f.Context(), g, "k", gives("new")).want("old", singleflight.Stale)
		fetch(f, f.Context(), g, "k", never(f)).want("new", singleflight.Cached)
	})
}

// A bound that the package sets itself is never told as a deadline of the caller, who may have set none.
func TestOwnBoundsAreNoDeadlineOfACaller(t *testing.T) {
	noDeadline := []error{leasehold.ErrUnavailable, redistest.Not(context.DeadlineExceeded), redistest.Says("no answer within")}
	ctx := context.Background()
	for what, call := range map[string]func(g *singleflight.Group[string]) error{
		"do":         func(g *singleflight.Group[string]) error { return redistest.ErrorOf(g.Do(ctx, "k", never(t))) },
		"peek":       func(g *singleflight.Group[string]) error { return peekErr(ctx, g, "k") },
		"inspect":    func(g *singleflight.Group[string]) error { return redistest.ErrorOf(g.Inspect(ctx, "k")) },
		"put":        func(g *singleflight.Group[string]) error { return g.Put(ctx, "k", "v") },
		"invalidate": func(g *singleflight.Group[string]) error { return g.Invalidate(ctx, "k") },
	} {
		subBubble(t, "first call of a client: "+what, func(f *fixture) {
			g, wire := f.open()
			wire.Patience = time.Minute
			wire.Stall()
			defer wire.Heal()
			began := time.Now()
			redistest.WantErr(f, call(g), noDeadline...)
			redistest.AtMost(f, time.Since(began), 9*time.Second, "it took %v")
		})
	}
	subBubble(t, "a result that the caller waited for", func(f *fixture) {
		g, other, wire := f.pair()
		_, l, _ := f.loading(other, "k")
		waits := fetch(f, f.Context(), g, "k", never(f))
		wire.Fail(func(name string) error {
			if name == "get" {
				return context.DeadlineExceeded // as go-redis says where no connection is made in time
			}
			return nil
		})
		l.returns(strings.Repeat("too large for a message", 1000))
		redistest.WantErr(f, waits.failed(), noDeadline...)
	})
}
