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

// settle lets what is under way go on until it waits for the origin, at a Redis that is away.
func settleAway() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// wantNoLoad fails the test if another load has begun.
func (o *origin) wantNoLoad(f *fixture) {
	f.Helper()
	settleAway()
	redistest.CheckNow(f, len(o.began) == 0, "another load runs at the same time")
}

// LoadLocally: a caller that begins after another process' Invalidate has returned gets nothing that was loaded before.
// Callers that come during a local load share the next one, or its failure. Nothing is stored. A caller that can ask
// Redis again joins no local load.
func TestCallersDuringALocalLoadShareTheNextOne(t *testing.T) {
	for what, cut := range withoutRedis {
		subBubble(t, what, func(f *fixture) {
			g, other, wire := f.two(locally)
			o := newOrigin(f)
			fetch(f, f.Context(), g, "warm", gives("v")).Got() // the server's clock is known
			cut(wire)
			first, l := begin(f, f.Context(), g, "k", o, o.load)
			redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
			var later []*pending[string]
			for range 9 {
				later = append(later, fetch(f, f.Context(), g, "k", o.load))
			}
			o.wantNoLoad(f)
			l.returns("old")
			first.want("old", singleflight.Loaded)
			o.next(f).returns("new")
			sources := map[singleflight.Source]int{}
			for _, p := range later {
				r := p.Got()
				sources[r.Source]++
				redistest.Check(f, r.Value == "new", "a caller after the Invalidate has %+v", r)
			}
			redistest.Check(f, sources[singleflight.Loaded] == 1 && sources[singleflight.Shared] == 8, "%v", sources)
			first, l = begin(f, f.Context(), g, "k", o, o.load)
			one, two := fetch(f, f.Context(), g, "k", o.load), fetch(f, f.Context(), g, "k", o.load)
			o.wantNoLoad(f)
			l.returns("before")
			first.wantValue("before")
			o.next(f).fails(errBoom)
			redistest.WantErr(f, one.Failed(), errBoom)
			redistest.WantErr(f, two.Failed(), errBoom)
			first, l = begin(f, f.Context(), g, "k", o, o.load)
			redistest.Expect(f, o.loads.Load(), 5, "%d loads")
			settleAway()
			wire.Heal()
			wantNothing(f, g, "k")
			redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
			after := fetch(f, f.Context(), g, "k", gives("back"))
			l.returns("old")
			first.wantValue("old")
			after.wantValue("back")
		})
	}
}

// A caller that began before the loader was called shares its load, however slow the caller's look-up is.
func TestCallerThatBeganBeforeALocalLoadSharesIt(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(locally)
		o := newOrigin(f)
		wire.StallReplies("get")
		slow := fetch(f, f.Context(), g, "k", o.load)
		wire.Cut() // what is sent from now on fails at once
		quick, l := begin(f, f.Context(), g, "k", o, o.load)
		o.wantNoLoad(f) // the slow one has joined it
		l.returns("v")
		quick.want("v", singleflight.Loaded)
		slow.want("v", singleflight.Shared)
	})
}

// The callers that wait for the next local load of a key wait no longer once nobody waits for
// the one that runs, or once this process has invalidated the key itself. If all of them have left, that load does not begin.
func TestNextLocalLoadBegins(t *testing.T) {
	for what, end := range map[string]func(f *fixture, g *singleflight.Group[string], leave func()){
		"its callers have left": func(_ *fixture, _ *singleflight.Group[string], leave func()) { leave() },
		"invalidate": func(f *fixture, g *singleflight.Group[string], _ func()) {
			redistest.NoError(f, g.Invalidate(f.Context(), "k"))
		},
		"put": func(f *fixture, g *singleflight.Group[string], _ func()) {
			redistest.NoError(f, g.Put(f.Context(), "k", "put"))
		},
	} {
		subBubble(t, what, func(f *fixture) {
			g, wire := f.open(locally)
			o := newOrigin(f)
			wire.CutOff("get", "load enter")
			ctx, leave := context.WithCancel(f.Context())
			fetch(f, ctx, g, "k", o.load)
			o.next(f)
			gone, goes := context.WithCancel(f.Context())
			fetch(f, gone, g, "k", never(f)) // does not wait for it, though it came first
			later := fetch(f, f.Context(), g, "k", o.load)
			o.wantNoLoad(f)
			goes()
			synctest.Wait()
			end(f, g, leave)
			o.next(f).returns("new")
			later.wantValue("new")
			leave()
			first, l := begin(f, f.Context(), g, "l", o, o.load)
			gone, goes = context.WithCancel(f.Context())
			later = fetch(f, gone, g, "l", never(f))
			o.wantNoLoad(f)
			goes()
			later.Failed()
			l.returns("v")
			first.Got()
			o.wantNoLoad(f)
			again := fetch(f, f.Context(), g, "l", o.load)
			o.next(f).returns("again")
			again.want("again", singleflight.Loaded)
		})
	}
}

// The keys that one DoMany could not join are loaded together, as soon as that is possible.
func TestManyKeysBehindALocalLoad(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(locally)
		b := newBatches()
		b.gate = make(chan struct{})
		wire.Cut()
		first := doMany(f, f.Context(), g, []string{"a", "b", "c"}, b)
		<-b.began
		second := doMany(f, f.Context(), g, []string{"b", "c", "d"}, b)
		<-b.began
		b.gate <- struct{}{} // one of the two
		b.gate <- struct{}{}
		<-b.began
		b.gate <- struct{}{}
		redistest.NoError(f, first.got("a", "A", "b", "B", "c", "C"))
		redistest.NoError(f, second.got("b", "B", "c", "C", "d", "D"))
		b.wantCalls(f, []string{"a", "b", "c"}, []string{"d"}, []string{"b", "c"})
	})
}

// withoutRedis are the steps of a load at which Redis can be away.
var withoutRedis = map[string]func(w *harness.Wire){
	"no lookup": (*harness.Wire).Cut,
	"no lease":  func(w *harness.Wire) { w.CutOff("load enter") },
}

func locally(c *singleflight.Config[string]) { c.OnUnavailable = singleflight.LoadLocally }

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
		redistest.WantErr(f, first.Failed(), context.Canceled)
		redistest.WantErr(f, second.Failed(), context.Canceled)
		synctest.Wait()
		redistest.Check(f, l.over(), "the load goes on for nobody")
		third := fetch(f, f.Context(), g, "k", o.obedient)
		l = o.next(f)
		later := fetch(f, f.Context(), g, "k", o.obedient)
		o.wantNoLoad(f)
		redistest.NoError(f, g.Close(f.Context()))
		redistest.WantErr(f, third.Failed(), leasehold.ErrClosed)
		redistest.WantErr(f, later.Failed(), leasehold.ErrClosed)
		redistest.Check(f, l.over(), "the load goes on after Close")
	})
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

// A bound that the package sets itself is never told as a deadline of the caller: the caller may have set none.
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
		g, other, wire := f.two()
		_, l, _ := f.loading(other, "k")
		waits := fetch(f, f.Context(), g, "k", never(f))
		wire.FailWith(context.DeadlineExceeded, "get") // as go-redis says where no connection is made in time
		l.returns(strings.Repeat("too large for a message", 1000))
		redistest.WantErr(f, waits.Failed(), noDeadline...)
	})
}
