package singleflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// goAway makes Redis one that g knows not to answer.
func (f *fixture) goAway(g *singleflight.Group[string], w *harness.Wire) {
	synctest.Wait() // an answer that is still to come would say that it is back
	w.GoAway(func() { _ = peekErr(f.Context(), g, "k") })
}

// Calls fail quickly while Redis is known to be away, and succeed at once when it is back. An Observer is told of each
// key that fails so, with the time that it took, and not of calls that are served, or that their callers left.
func TestRedisIsAway(t *testing.T) {
	bubble(t, func(f *fixture) {
		var told []time.Duration
		want := 0
		wantTold := func(after string, keys int) {
			f.Helper()
			synctest.Wait()
			want += keys
			redistest.Require(f, len(told), want, "after %s the Observer was told of %d keys", after)
		}
		g, wire := f.open(maxLoads(1), func(c *singleflight.Config[string]) {
			c.Observer = harness.ObserverFunc(func(e leasehold.Event) {
				if e.Kind == leasehold.EventLookup && e.Outcome == leasehold.OutcomeUnavailable {
					told = append(told, e.Duration)
				}
			})
		})
		fetch(f, f.Context(), g, "k", gives("v")).Got()
		fetch(f, f.Context(), g, "l", fails(context.DeadlineExceeded)).Failed()
		wantTold("calls that Redis answered", 0)
		f.goAway(g, wire)
		wantTold("a Peek", 1)
		for i := range 5 {
			time.Sleep(time.Second)
			for name, c := range map[string]struct {
				call func() error
				told int
			}{
				"do":      {func() error { return redistest.ErrorOf(g.Do(f.Context(), "k", never(f))) }, 1},
				"peek":    {func() error { return peekErr(f.Context(), g, "k") }, 1},
				"inspect": {func() error { return redistest.ErrorOf(g.Inspect(f.Context(), "k")) }, 0},
				"do many": {func() error { return doMany(f, f.Context(), g, []string{"k", "l"}, newBatches()).got() }, 2},
				"a short ctx": {func() error {
					_, err := g.Do(f.Within(time.Millisecond), "k", never(f))
					return errors.Join(err, harness.ErrRefused)
				}, 1},
			} {
				began := time.Now()
				redistest.WantErr(f, c.call(), leasehold.ErrUnavailable, harness.ErrRefused)
				took := time.Since(began)
				redistest.AtMost(f, took, 100*time.Millisecond, "%s no. %d took %v", name, i)
				wantTold(name, c.told)
				redistest.Check(f, c.told == 0 || told[want-1] == took, "%s took %v, and the Observer was told %v", name, took, told)
			}
		}
		redistest.Check(f, slices.Max(told) != 0, "no call waited for Redis: %v", told)
		time.Sleep(time.Second)
		ctx, leave := context.WithCancel(f.Context())
		time.AfterFunc(time.Millisecond, leave)
		redistest.WantErr(f, redistest.ErrorOf(g.Do(ctx, "k", never(f))), context.Canceled)
		wantTold("a call whose caller left", 0)
		wire.Heal()
		time.Sleep(time.Second)
		fetch(f, f.Context(), g, "k", never(f)).want("v", singleflight.Cached)
		wantTold("a hit", 0)
		// Redis answers the look-up, and is away when the permit is asked for. The lease is given back.
		wire.CutOff("enter")
		redistest.WantErr(f, fetch(f, f.Context(), g, "new", never(f)).Failed(), leasehold.ErrUnavailable, harness.ErrCut)
		wantTold("a load without a permit", 1)
		wire.Heal()
		time.Sleep(time.Second)
		redistest.Check(f, f.freed("new"), "the lease is held yet")
		// A call that finds Redis away after its look-up does not try for long, either.
		var away atomic.Bool
		wire.Fail(func(name string) error {
			if name == "load enter" || away.Load() {
				away.Store(true)
				return harness.ErrRefused
			}
			return nil
		})
		began := time.Now()
		redistest.WantErr(f, fetch(f, f.Context(), g, "l", never(f)).Failed(), leasehold.ErrUnavailable, harness.ErrRefused)
		redistest.AtMost(f, time.Since(began), 100*time.Millisecond, "it took %v")
	})
}

// Invalidate and Put have a bound of their own, of 6 s, so that a short outage loses no
// invalidation. They do not ask whether Redis is away.
func TestInvalidateOutlastsAnOutage(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, g *singleflight.Group[string]) error{
		"invalidate": func(ctx context.Context, g *singleflight.Group[string]) error { return g.Invalidate(ctx, "k") },
		"put":        func(ctx context.Context, g *singleflight.Group[string]) error { return g.Put(ctx, "k", "new") },
	} {
		subBubble(t, name, func(f *fixture) {
			g, wire := f.open()
			redistest.WantErr(f, call(f.Context(), g)) // the server knows the script
			f.goAway(g, wire)
			wire.StallReplies("")
			wire.Unstall()
			ended := harness.Begin(f, func() error { return call(f.Context(), g) })
			time.Sleep(4500 * time.Millisecond)
			wire.Heal()
			synctest.Wait()
			ended.Got()
		})
	}
}

// MaxLoads bounds the loads of a process while Redis is away, until their loaders have
// returned. Loads that began under a permit count. A load that waits for its slot is open to all callers. The permits
// share the group's knowledge of the server, also if the client is wrapped in a type that is no pointer.
func TestMaxLoadsHoldsWhileRedisIsAway(t *testing.T) {
	bubble(t, func(f *fixture) {
		const most, keys, loads = 3, 10, 12
		wire := &harness.Wire{Patience: clientPatience}
		rdb := f.Connect(wire).(*redis.Client)
		rdb.AddHook(wire)
		g := openOn(f, embedsSingle{rdb}, locally, maxLoads(most), func(c *singleflight.Config[string]) { c.LeaseTTL, c.LoadTimeout = time.Hour, time.Minute })
		f.Cleanup(wire.Heal)
		o := newOrigin(f)
		first, l := begin(f, f.Context(), g, "under a permit", o, o.load)
		run := []*loading{l}
		f.goAway(g, wire)
		began := time.Now()
		for i := range keys {
			fetch(f, f.Context(), g, fmt.Sprint(i), o.load)
		}
		for range most - 1 {
			run = append(run, o.next(f))
		}
		redistest.AtMost(f, time.Since(began), 300*time.Millisecond, "the loads began after %v")
		o.wantNoLoad(f)
		var later []*pending[string]
		for range 5 {
			later = append(later, fetch(f, f.Context(), g, "later", o.load))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute) // LoadTimeout: the loaders have not returned
		first.Failed()
		o.wantNoLoad(f)
		for ended := range loads {
			run[ended].returns("v")
			if len(run) < loads {
				run = append(run, o.next(f))
				o.wantNoLoad(f)
			}
		}
		for _, p := range later {
			p.wantValue("v")
		}
	})
}

// A revoked load that ignores its ctx keeps no other from loading in its process.
func TestRevokedLoadFreesItsSlot(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open(maxLoads(1))
		first, l, o := f.loading(g, "k")
		second := fetch(f, f.Context(), g, "l", gives("v"))
		redistest.WantErr(f, g.Revoke(f.Context(), "k", inspect(f, g, "k").LoadID, "it hangs"))
		second.want("v", singleflight.Loaded)
		third, m := begin(f, f.Context(), g, "m", o, o.load)
		l.returns("late")
		first.Got()
		fourth := fetch(f, f.Context(), g, "n", o.load)
		o.wantNoLoad(f) // the first has freed its slot once
		m.returns("v")
		third.Got()
		o.next(f).returns("v")
		fourth.Got()
	})
}

// Loads that wait for a slot ask Redis again once it is back: they get what others have stored,
// or load with a lease and store. Those of one DoMany stay together, and its loader loads them, also if its caller has
// left them to others.
func TestLoadsThatWaitForASlotAskRedisAgain(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, wire := f.two(locally, maxLoads(1))
		o, b := newOrigin(f), newBatches()
		f.goAway(g, wire)
		first, l := begin(f, f.Context(), g, "x", o, o.load)
		stored := fetch(f, f.Context(), g, "stored", never(f))
		missing := fetch(f, f.Context(), g, "missing", o.load)
		some := doMany(f, f.Context(), g, []string{"a", "b"}, b)
		ctx, leave := context.WithCancel(f.Context())
		left := doMany(f, ctx, g, []string{"c", "d"}, b)
		o.wantNoLoad(f)
		heirs := []*pending[string]{fetch(f, f.Context(), g, "c", never(f)), fetch(f, f.Context(), g, "d", never(f))}
		o.wantNoLoad(f)
		leave()
		left.Failed()
		redistest.WantErr(f, other.Put(f.Context(), "stored", "by another"))
		wire.Heal()
		time.Sleep(time.Second)
		stored.wantValue("by another")
		for _, key := range []string{"missing", "a", "b"} {
			redistest.Check(f, inspect(f, other, key).Loading, "the load of %s has no lease", key)
		}
		o.wantNoLoad(f) // its slot is taken yet
		l.returns("X")
		first.Got()
		o.next(f).returns("v")
		missing.want("v", singleflight.Loaded)
		redistest.NoError(f, some.got("a", "A", "b", "B"))
		heirs[0].want("C", singleflight.Shared)
		heirs[1].want("D", singleflight.Shared)
		redistest.Check(f, len(b.calls) == 2, "the keys of two DoMany were loaded by %v", b.calls)
		fetch(f, f.Context(), other, "missing", never(f)).want("v", singleflight.Cached)
	})
}

// A caller that cannot decode what others load does not ask for that again when Redis is back.
func TestCallerThatCannotLookAgain(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(locally, maxLoads(1), blind)
		other, _ := f.open(func(c *singleflight.Config[string]) { c.Codec = &jsonCodec{} })
		o := newOrigin(f)
		f.goAway(g, wire)
		x, l := begin(f, f.Context(), g, "x", o, o.load)
		first := fetch(f, f.Context(), g, "k", o.load)
		time.Sleep(time.Second)
		alone := fetch(f, f.Context(), g, "k", o.load)
		settleAway()
		z := fetch(f, f.Context(), g, "z", o.load)
		settleAway()
		l.returns("x")
		x.Got()
		o.next(f).returns("of the first")
		first.want("of the first", singleflight.Loaded)
		l = o.next(f) // of z; the second caller of k waits behind it
		o.wantNoLoad(f)
		redistest.WantErr(f, other.Put(f.Context(), "k", "stored"))
		wire.Heal()
		o.wantNoLoad(f)
		l.returns("z")
		z.Got()
		o.next(f).returns("its own")
		alone.want("its own", singleflight.Loaded)
	})
}

// Under LoadLocally, a wait for a permit or for the load of another process ends when Redis goes away. Under Fail, such a
// wait outlasts a short outage. A breaker that opens by mistake ends no wait: the probe is answered.
func TestWaitsWhenRedisGoesAway(t *testing.T) {
	for how, c := range map[string]struct {
		policy singleflight.Policy
		away   func(f *fixture, g *singleflight.Group[string], w *harness.Wire)
		quick  bool
	}{
		"locally": {singleflight.LoadLocally, (*fixture).goAway, true},
		"fail":    {singleflight.Fail, (*fixture).goAway, false},
		"locally, false alarm": {singleflight.LoadLocally, func(f *fixture, g *singleflight.Group[string], w *harness.Wire) {
			refused := false
			w.Fail(func(name string) error {
				if name == "get" && !refused {
					refused = true
					return harness.ErrRefused
				}
				return nil
			})
			redistest.WantErr(f, peekErr(f.Context(), g, "k"), harness.ErrRefused)
		}, false},
	} {
		for what, key := range map[string]string{"a permit": "l", "a load": "k"} {
			subBubble(t, how+", "+what, func(f *fixture) {
				bound := maxLoads(1)
				if what == "a load" {
					bound = nil
				}
				g, wire := f.open(bound, func(cfg *singleflight.Config[string]) { cfg.OnUnavailable = c.policy })
				other, _ := f.open(bound)
				o, held := newOrigin(f), newOrigin(f)
				first, l := begin(f, f.Context(), other, "k", held, held.load)
				waits := fetch(f, f.Context(), g, key, o.load)
				began := time.Now()
				c.away(f, g, wire)
				if c.quick {
					o.next(f).returns("local")
					redistest.AtMost(f, time.Since(began), 200*time.Millisecond, "it waited for %v")
					waits.want("local", singleflight.Loaded)
				}
				time.Sleep(2 * time.Second)
				wire.Heal()
				l.returns("v")
				first.Got()
				if !c.quick {
					if what == "a permit" {
						o.next(f).returns("v")
					}
					waits.wantValue("v")
				}
			})
		}
	}
}
