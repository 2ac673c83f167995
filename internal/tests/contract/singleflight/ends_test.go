package singleflight

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// over reports whether a load's ctx has ended.
func (l *loading) over() bool { return l.ctx.Err() != nil }

// freed reports whether nobody has the lease to load key.
func (f *fixture) freed(key string) bool {
	return f.RDB.ZCard(context.Background(), f.Part(key, "holders")).Val() == 0
}

type ctxKey struct{}

// A load's ctx has the first caller's values, and neither its deadline nor its end.
func TestLoadersCtxHasValuesAndNoDeadline(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open()
		o := newOrigin(f)
		ctx, cancel := context.WithTimeout(context.WithValue(f.Context(), ctxKey{}, "first"), time.Minute)
		defer cancel()
		fetch(f, ctx, g, "k", o.load)
		second := fetch(f, context.WithValue(f.Context(), ctxKey{}, "second"), g, "k", o.load)
		l := o.next(f)
		_, bounded := l.ctx.Deadline()
		redistest.Check(f, !bounded && l.ctx.Value(ctxKey{}) == "first", "deadline %v, value %v", bounded, l.ctx.Value(ctxKey{}))
		cancel()
		synctest.Wait()
		time.Sleep(time.Minute)
		redistest.Check(f, !l.over(), "the load ended with its caller: %v", context.Cause(l.ctx))
		l.returns("v")
		second.Got()
		synctest.Wait()
		redistest.Check(f, l.over(), "the load's ctx goes on after the load")
	})
}

// Where nobody waits any more, the load ends at once, and its lease is free;
// where the last one leaves another process, within a third of the lease.
func TestLoadEndsWithItsLastWaiter(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other := f.two()
		o := newOrigin(f)
		ctx, cancel := context.WithCancel(f.Context())
		first, l := begin(f, ctx, g, "k", o, o.obedient)
		cancel()
		first.Failed()
		synctest.Wait()
		redistest.CheckNow(f, l.over() && f.freed("k"), "the load goes on: ctx ended %v, lease freed %v", l.over(), f.freed("k"))
		cause := context.Cause(l.ctx)
		redistest.Check(f, !errors.Is(cause, leasehold.ErrLost) && !errors.Is(cause, leasehold.ErrClosed), "ended with %v", cause)

		ctx, cancel = context.WithCancel(f.Context())
		there, leave := context.WithCancel(f.Context())
		defer leave()
		_, l = begin(f, ctx, g, "k", o, o.obedient)
		fetch(f, there, other, "k", never(f))
		cancel()
		time.Sleep(20 * time.Second)
		redistest.CheckNow(f, !l.over(), "the load ended before its last waiter")
		leave()
		time.Sleep(10 * time.Second / 3) // of a LeaseTTL of 10 s
		synctest.Wait()
		redistest.CheckNow(f, l.over() && f.freed("k"), "a third of the lease later: ctx ended %v, lease freed %v", l.over(), f.freed("k"))
		// What we ended is nobody's failure.
		s := inspect(f, g, "k")
		redistest.Check(f, s.Failure == "" && !s.Loading, "%+v", s)
		redistest.Expect(f, fetch(f, f.Context(), other, "k", gives("v")).Got().Source, singleflight.Loaded, "it came from %v")
	})
}

// A caller that comes after the last caller has left, and before Redis was asked whether
// anybody waits elsewhere, keeps the load alive; a caller that comes after that starts one of
// its own, and what the ended one comes to is neither shared nor stored.
func TestNewcomerToALoadThatEndsLoadsAnew(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(func(c *singleflight.Config[string]) { c.ErrorTTL = time.Minute })
		for _, asked := range []bool{false, true} {
			o := newOrigin(f)
			ctx, cancel := context.WithCancel(f.Context())
			first, l := begin(f, ctx, g, "k", o, o.load)
			if asked {
				wire.StallReplies("load renew")
			} else {
				wire.Stall("load renew")
			}
			cancel()
			first.Failed()
			synctest.Wait()
			newcomer := fetch(f, f.Context(), g, "k", gives("own"))
			redistest.CheckNow(f, !l.over() && f.freed("k") == asked, "asked %v: the lease is freed: %v", asked, f.freed("k"))
			if !asked {
				wire.Heal()
				time.Sleep(time.Minute)
				l.returns("shared")
				newcomer.want("shared", singleflight.Shared)
			} else {
				l.fails(errBoom)
				newcomer.want("own", singleflight.Loaded)
				wire.Heal()
				synctest.Wait()
				s := inspect(f, g, "k")
				redistest.Check(f, s.Failure == "" && s.Cached, "%+v", s)
			}
			redistest.WantErr(f, g.Invalidate(f.Context(), "k"))
		}
	})
}

// A caller that leaves while its flight ends without a result for it has nothing
// loaded: nobody would wait for that load.
func TestCallerThatLeavesWhileItsFlightEndsLoadsNothing(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, wire := f.pair()
		first, l, o := f.loading(g, "k")
		redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
		ctx, cancel := context.WithCancel(f.Context())
		late := fetch(f, ctx, g, "k", o.obedient) // it must not have the result of that load
		synctest.Wait()
		wire.Stall("load publish")
		l.returns("v")
		cancel()
		redistest.WantErr(f, late.Failed(), context.Canceled)
		wire.Heal()
		first.want("v", singleflight.Loaded)
		synctest.Wait()
		redistest.Expect(f, o.loads.Load(), 1, "%d loads")
	})
}

// A caller that joins a refresh that turns out not to be this process's waits for the other,
// although the refresh would not have.
func TestJoiningARefreshThatIsNotGranted(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, wire := f.pair(staleFor)
		f.stalled(g, "k")
		o := newOrigin(f)
		fetch(f, f.Context(), other, "k", o.load).want("old", singleflight.Stale)
		l := o.next(f)
		wire.Stall("load enter")
		fetch(f, f.Context(), g, "k", never(f)).want("old", singleflight.Stale) // its refresh is under way
		f.RDB.Del(f.Context(), f.Part("k", "value"))                            // so that there is nothing to be served
		joins := fetch(f, f.Context(), g, "k", never(f))
		wire.Heal()
		synctest.Wait()
		redistest.CheckNow(f, !joins.Ended(), "%+v, %v", joins.Value, joins.Err)
		l.returns("new")
		joins.want("new", singleflight.Shared)
	})
}

// A caller that is served a stale value at that moment still has the value rebuilt.
func TestCallerThatIsServedWhileItsFlightEndsHasTheValueRebuilt(t *testing.T) {
	bubble(t, func(f *fixture) {
		mod := func(c *singleflight.Config[string]) {
			c.TTL, c.StaleFor, c.SoftTimeout = time.Second, time.Hour, 200*time.Millisecond
		}
		g, wire := f.open(mod)
		fetch(f, f.Context(), g, "k", gives("old")).Got()
		time.Sleep(2 * time.Second)
		first, l, o := f.loading(g, "k")
		synctest.Wait()
		late := fetch(f, f.Context(), g, "k", o.load)
		wire.Stall("load publish")
		f.RDB.Del(f.Context(), f.Part("k", "holders")) // the lease is lost
		l.returns("lost")
		first.want("old", singleflight.Stale)
		late.want("old", singleflight.Stale)
		wire.Heal()
		o.next(f).returns("new")
		synctest.Wait()
		fetch(f, f.Context(), g, "k", never(f)).want("new", singleflight.Cached)
	})
}

// refusal is an error of the server that stays.
type refusal struct{}

func (refusal) Error() string { return "ERR not this one" }
func (refusal) RedisError()   {}

// If the result of a load cannot be published, stored or not, nobody is held up: a waiter elsewhere loads by itself.
func TestRefusedPublicationHoldsNobodyUp(t *testing.T) {
	for what, refused := range map[string]error{"by the server": refusal{}, "on the way": errors.New("ERR not today")} {
		subBubble(t, what, func(f *fixture) {
			g, other, w := f.pair()
			first, l, _ := f.loading(g, "k")
			second := fetch(f, f.Context(), other, "k", gives("theirs"))
			w.Fail(func(name string) error {
				if name == "load publish" {
					return refused
				}
				return nil
			})
			began := time.Now()
			l.returns("ours")
			first.wantValue("ours")
			second.want("theirs", singleflight.Loaded)
			redistest.AtMost(f, time.Since(began), time.Second, "the second caller waited for %v")
		})
	}
}
