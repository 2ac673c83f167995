package singleflight

import (
	"context"
	"errors"
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

// Fail: what needs Redis says so, names the key and wraps the cause; nothing is
// loaded. What is cached elsewhere is untouched.
func TestUnavailableFails(t *testing.T) {
	some(t, func(f *fixture) {
		g, wire := f.open()
		b := newBatches()
		fetch(f, f.Context(), g, "k", gives("v")).got()
		wire.Cut()
		_, err := g.Do(f.Context(), "k", never(f))
		redistest.WantErr(f, err, leasehold.ErrUnavailable, harness.ErrCut, redistest.Says("singleflight: do "+f.Family+"/k"))
		redistest.WantErr(f, redistest.ErrorOf(g.Fetch(f.Context(), "k", never(f))), leasehold.ErrUnavailable, harness.ErrCut)
		_, _, err = g.Peek(f.Context(), "k")
		redistest.WantErr(f, err, leasehold.ErrUnavailable, harness.ErrCut)
		redistest.WantErr(f, redistest.ErrorOf(g.Inspect(f.Context(), "k")), leasehold.ErrUnavailable, harness.ErrCut)
		err = doMany(f, f.Context(), g, []string{"k", "l"}, b).got()
		redistest.WantErr(f, err, leasehold.ErrUnavailable, harness.ErrCut, redistest.Says(f.Family+"/k", f.Family+"/l"))
		b.wantCalls(f)
		wire.Heal()
		fetch(f, f.Context(), g, "k", never(f)).got()
		redistest.Expect(f, g.Stats(), (singleflight.Stats{Hits: 1, Loaded: 1, Loads: 1, Errors: 4}), "%+v")
	})
}

// LoadLocally: loaded once in this process, each caller has a value of its own,
// nothing is stored, and a failure is shared.
func TestUnavailableLoadsLocally(t *testing.T) {
	for what, cut := range withoutRedis {
		subBubble(t, what, func(f *fixture) {
			g, wire := f.open(locally)
			o := newOrigin(f)
			boom := errors.New("boom")
			fetch(f, f.Context(), g, "warm", gives("v")).got() // the server's clock is known
			for _, fail := range []bool{false, true} {
				cut(wire)
				var all []*pending[string]
				holds, before := begin(f, f.Context(), g, "k", o, o.load)
				for range 10 {
					all = append(all, fetch(f, f.Context(), g, "k", o.load))
				}
				settle()
				before.returns("before")
				holds.got()
				l := o.next(f)
				sources := map[singleflight.Source]int{}
				if fail {
					l.fails(boom)
				} else {
					l.returns("v")
				}
				for _, p := range all {
					if fail {
						redistest.WantErr(f, p.failed(), boom)
					} else {
						sources[p.got().Source]++
					}
				}
				redistest.Check(f, fail || sources[singleflight.Loaded] == 1 && sources[singleflight.Shared] == 9, "%v", sources)
				wire.Heal()
				wantNothing(f, g, "k")
			}
			redistest.Expect(f, o.loads.Load(), 4, "%d loads")
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
			synctest.Wait()
			l.returns("old")
			first.got()
			after.wantValue("new")
		})
	}
}

// LoadLocally: a refresh that nobody waits for does without where Redis can't be
// asked: its result would reach nobody.
func TestUnavailableRefreshLoadsNothing(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(locally, staleFor)
		f.stalled(g, "k")
		wire.CutOff("load enter")
		fetch(f, f.Context(), g, "k", never(f)).want("old", singleflight.Stale)
		synctest.Wait()
		time.Sleep(5 * time.Second) // until the refresh has given up
		wire.Heal()
		fetch(f, f.Context(), g, "k", gives("new")).want("old", singleflight.Stale)
		synctest.Wait()
		fetch(f, f.Context(), g, "k", never(f)).want("new", singleflight.Cached)
	})
}

// A bound that the package sets itself is never told as a deadline of the caller, who may have set none.
func TestOwnBoundsAreNoDeadlineOfACaller(t *testing.T) {
	for what, call := range map[string]func(g *singleflight.Group[string]) error{
		"do": func(g *singleflight.Group[string]) error {
			return redistest.ErrorOf(g.Do(context.Background(), "k", never(t)))
		},
		"peek": func(g *singleflight.Group[string]) error { return peekErr(context.Background(), g, "k") },
		"inspect": func(g *singleflight.Group[string]) error {
			return redistest.ErrorOf(g.Inspect(context.Background(), "k"))
		},
		"put":        func(g *singleflight.Group[string]) error { return g.Put(context.Background(), "k", "v") },
		"invalidate": func(g *singleflight.Group[string]) error { return g.Invalidate(context.Background(), "k") },
	} {
		subBubble(t, "first call of a client: "+what, func(f *fixture) {
			g, wire := f.open()
			wire.Patience = time.Minute
			wire.Stall()
			defer wire.Heal()
			began := time.Now()
			err := call(g)
			redistest.AtMost(f, time.Since(began), 9*time.Second, "it took %v")
			redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Not(context.DeadlineExceeded), redistest.Says("no answer within"))
		})
	}
	subBubble(t, "a result that the caller waited for", func(f *fixture) {
		g, other, wire := f.pair()
		_, l, _ := f.loading(other, "k")
		waits := fetch(f, f.Context(), g, "k", never(f))
		synctest.Wait()
		wire.Fail(func(name string) error {
			if name == "get" {
				return context.DeadlineExceeded // as go-redis says where no connection is made in time
			}
			return nil
		})
		l.returns(strings.Repeat("too large for a message", 1000))
		redistest.WantErr(f, waits.failed(), leasehold.ErrUnavailable, redistest.Not(context.DeadlineExceeded), redistest.Says("no answer within"))
	})
}
