package singleflight

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
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

// LoadLocally: a caller that begins after another process' Invalidate has returned gets
// nothing that was loaded before. Callers that come during a local load share the next one.
func TestCallersDuringALocalLoadShareTheNextOne(t *testing.T) {
	for what, cut := range withoutRedis {
		subBubble(t, what, func(f *fixture) {
			g, wire := f.open(locally)
			other, _ := f.open()
			o := newOrigin(f)
			fetch(f, f.Context(), g, "warm", gives("v")).got() // the server's clock is known
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
				r := p.got()
				if sources[r.Source]++; r.Value != "new" {
					f.Errorf("a caller after the Invalidate has %+v", r)
				}
			}
			redistest.Check(f, sources[singleflight.Loaded] == 1 && sources[singleflight.Shared] == 8, "%v", sources)
			redistest.Expect(f, o.loads.Load(), 2, "%d loads")
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
// the one that runs, or once this process has invalidated the key itself.
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
		})
	}
}

// If all callers that wait for the next local load have left, that load does not begin.
func TestNextLocalLoadThatNobodyWantsDoesNotBegin(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(locally)
		o := newOrigin(f)
		wire.Cut()
		first, l := begin(f, f.Context(), g, "k", o, o.load)
		ctx, leave := context.WithCancel(f.Context())
		later := fetch(f, ctx, g, "k", o.load)
		o.wantNoLoad(f)
		leave()
		later.failed()
		l.returns("v")
		first.got()
		o.wantNoLoad(f)
		again := fetch(f, f.Context(), g, "k", o.load)
		o.next(f).returns("again")
		again.want("again", singleflight.Loaded)
	})
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
