package singleflight

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// lease makes the lease last that long.
func lease(d time.Duration) config { return func(c *singleflight.Config[string]) { c.LeaseTTL = d } }

// The ctx of a load whose lease is lost ends with ErrLost. Where the loader
// fails then, nobody sees that: all look again.
func TestFailureAfterALostLeaseIsNotShared(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(lease(2 * time.Second))
		o := newOrigin(f)
		first, l := begin(f, f.Context(), g, "k", o, o.obedient)
		second := fetch(f, f.Context(), g, "k", o.obedient)
		f.RDB.Del(f.Context(), f.Part("k", "holders"))
		redistest.Get(f, "the load's ctx to end", l.ctx.Done())
		redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrLost)
		o.next(f).returns("v")
		first.want("v", singleflight.Loaded) // it has waited longest
		second.wantValue("v")
		redistest.Expect(f, o.loads.Load(), 2, "%d loads")
	})
}

// Where it returns a value all the same, its first caller gets that, the others ask again, and it isn't stored.
func TestValueAfterALostLeaseIsNotStored(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other := f.two()
		first, l, o := f.loading(g, "k")
		joins, waits := fetch(f, f.Context(), g, "k", o.load), fetch(f, f.Context(), other, "k", o.load)
		f.Server.FlushAll()
		time.Sleep(4 * time.Second) // of a LeaseTTL of 10 s
		redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrLost)
		newer := o.next(f) // of the other process, that was told so
		l.returns("old")
		first.want("old", singleflight.Loaded)
		synctest.Wait()
		redistest.CheckNow(f, !joins.Ended(), "the caller that joined has %+v, %v", joins.Value, joins.Err)
		s := inspect(f, g, "k")
		redistest.Check(f, !s.Cached && s.Loading, "%+v", s)
		newer.returns("new")
		a, b := joins.Got(), waits.Got()
		redistest.Check(f, a.Value == "new" && b.Value == "new", "%+v, %+v", a, b)
		wantStored(f, g, "k", "new")
	})
}

// LoadTimeout bounds a load also where its lease was lost before: a loader that
// ignores its ctx can't hold its callers for longer.
func TestLoadTimeoutAfterALostLease(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.LeaseTTL, c.LoadTimeout = time.Second, 5*time.Second })
		first, l, o := f.loading(g, "k")
		f.Server.FlushAll()
		time.Sleep(time.Second)
		redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrLost)
		time.Sleep(4 * time.Second)
		o.next(f).returns("v")
		first.wantValue("v")
		l.returns("too late")
	})
}

// Where Redis doesn't answer, the first caller has its value after 1 s; a caller
// joined can't know whether it was invalidated: ErrUnavailable. Under LoadLocally
// that came before the lease was taken has the value, and a later caller loads.
func TestRedisGoneBeforeThePublish(t *testing.T) {
	for what, policy := range map[string]singleflight.Policy{"fail": singleflight.Fail, "load locally": singleflight.LoadLocally} {
		for how, gone := range map[string]func(w *harness.Wire){
			"cut": (*harness.Wire).Cut, "silent": func(w *harness.Wire) { w.Stall() }, "unknown": func(w *harness.Wire) { w.StallReplies("load publish") },
		} {
			for name, loads := range map[string]int{"": 0, ", MaxLoads": 5} {
				subBubble(t, what+", "+how+name, func(f *fixture) {
					g, wire := f.open(func(c *singleflight.Config[string]) { c.OnUnavailable, c.MaxLoads = policy, loads })
					o := newOrigin(f)
					wire.CutOff("load enter")
					first := fetch(f, f.Context(), g, "k", o.load)
					early := fetch(f, f.Context(), g, "k", never(f))
					wire.Heal()
					l := o.next(f)
					late := fetch(f, f.Context(), g, "k", gives("own"))
					gone(wire)
					began := time.Now()
					l.returns("v")
					first.want("v", singleflight.Loaded)
					redistest.AtMost(f, time.Since(began), time.Second, "it waited for %v")
					if policy == singleflight.Fail {
						redistest.WantErr(f, early.Failed(), leasehold.ErrUnavailable)
						redistest.WantErr(f, late.Failed(), leasehold.ErrUnavailable)
					} else {
						early.want("v", singleflight.Shared)
						if r := late.Got(); r.Value != "own" && how != "unknown" { // there it may be found published
							f.Errorf("%+v", r)
						}
					}
					wire.Heal()
					time.Sleep(4 * time.Second)
					redistest.Check(f, f.freed("k"), "the lease is held yet")
				})
			}
		}
	}
}

// What Redis answered a process with may have been invalidated before another
// caller came: a caller that joined after the answer gets it only if it holds yet. Each case
// makes the enter of a first caller be answered, and its answer be held up.
func TestCallerThatJoinsAfterTheAnswerAsksAgain(t *testing.T) {
	for what, c := range map[string]struct {
		others      loader // of a call of another process: while the enter is held up, or before it
		meanwhile   bool
		value       string
		first, late singleflight.Source // where nothing was invalidated; 0: the failure
	}{
		"a value":                  {gives("old"), true, "old", singleflight.Cached, singleflight.Cached},
		"a remembered failure":     {fails(errBoom), false, "", 0, 0},
		"the mark of large values": {gives("far too large"), false, "own", singleflight.Loaded, singleflight.Shared},
	} {
		for _, invalidated := range []bool{false, true} {
			subBubble(t, fmt.Sprint(what, ", invalidated: ", invalidated), func(f *fixture) {
				g, other, wire := f.pair(func(c *singleflight.Config[string]) { c.ErrorTTL, c.MaxValueBytes = time.Minute, 10 })
				fetch(f, f.Context(), g, "warm", gives("v")).Got()
				var first *pending[string]
				if c.meanwhile {
					wire.Stall("load enter")
					first = fetch(f, f.Context(), g, "k", gives("own"))
				}
				redistest.Get(f, "the other's end", fetch(f, f.Context(), other, "k", c.others).Done)
				wire.StallReplies("load enter")
				wire.Unstall()
				if !c.meanwhile {
					first = fetch(f, f.Context(), g, "k", gives("own"))
				}
				synctest.Wait()
				if invalidated {
					redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
				}
				late := fetch(f, f.Context(), g, "k", gives("new"))
				redistest.CheckNow(f, !first.Ended(), "the first one has its answer: %+v, %v", first.Value, first.Err)
				wire.Heal()
				wants := func(p *pending[string], source singleflight.Source) {
					if source == 0 {
						redistest.WantText(f, p.Failed(), "boom")
					} else {
						p.want(c.value, source)
					}
				}
				wants(first, c.first)
				if invalidated {
					late.want("new", singleflight.Loaded)
				} else {
					wants(late, c.late)
				}
			})
		}
	}
}
