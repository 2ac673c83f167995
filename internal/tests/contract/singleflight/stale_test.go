package singleflight

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// staleFor is a TTL of 10 s, after which values are served for a minute.
func staleFor(c *singleflight.Config[string]) {
	c.TTL, c.Jitter, c.StaleFor = 10*time.Second, -1, time.Minute
}

// staleIfError is the same where the loader fails.
func staleIfError(c *singleflight.Config[string]) {
	c.TTL, c.Jitter, c.StaleIfError = 10*time.Second, -1, time.Minute
}

// stalled puts a value there and lets its TTL pass.
func (f *fixture) stalled(g *singleflight.Group[string], key string) {
	f.Helper()
	fetch(f, f.Context(), g, key, gives("old")).got()
	time.Sleep(11 * time.Second)
}

// With StaleFor the caller who starts the refresh is served stale at once, as
// are all others meanwhile; one refreshes, in the whole fleet.
func TestStaleWhileOneRebuilds(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(staleFor)
		other, _ := f.open(staleFor)
		f.stalled(g, "k")
		o := newOrigin(f)
		fetch(f, f.Context(), g, "k", o.load).want("old", singleflight.Stale)
		l := o.next(f) // of g, not of the other
		fetch(f, f.Context(), other, "k", o.load).want("old", singleflight.Stale)
		for range 9 {
			fetch(f, f.Context(), g, "k", o.load).want("old", singleflight.Stale)
			fetch(f, f.Context(), other, "k", o.load).want("old", singleflight.Stale)
		}
		redistest.Check(f, l.ctx.Err() == nil, "the refresh ended with its caller")
		time.Sleep(20 * time.Second) // nobody waits for it, and it goes on
		fetch(f, f.Context(), other, "k", o.load).want("old", singleflight.Stale)
		redistest.Check(f, !l.over(), "the refresh ended: %v", context.Cause(l.ctx))
		l.returns("new")
		synctest.Wait()
		fetch(f, f.Context(), other, "k", o.load).want("new", singleflight.Cached)
		redistest.Expect(f, o.loads.Load(), 1, "%d loads")
		s := g.Stats()
		redistest.Check(f, s.Stale == 10 && s.Refreshes == 1 && s.EarlyRefreshes == 0 && s.Loads == 2, "%+v", s)
		time.Sleep(70 * time.Second) // stale for a minute, and no longer
		fetch(f, f.Context(), g, "k", gives("newest")).want("newest", singleflight.Loaded)
	})
}

// A caller that was told that another rebuilds the value doesn't ask again for 100 ms.
func TestStaleRefreshIsNotAskedForAgainAtOnce(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(staleFor)
		other, wire := f.open(staleFor)
		f.stalled(g, "k")
		o := newOrigin(f)
		fetch(f, f.Context(), g, "k", o.load).want("old", singleflight.Stale)
		l := o.next(f)
		for range 1000 {
			fetch(f, f.Context(), other, "k", never(f)).want("old", singleflight.Stale)
			time.Sleep(time.Millisecond)
		}
		redistest.Between(f, wire.Sent("load enter"), 5, 11, "1000 stale answers within a second asked %d times")
		l.returns("new")
	})
}

// Nor does a caller that was told that a failure is remembered, for as long as that is so
// at least.
func TestStaleRefreshBesideARememberedFailure(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, wire := f.open(staleFor, func(c *singleflight.Config[string]) { c.ErrorTTL = 10 * time.Second })
		f.stalled(g, "k")
		fetch(f, f.Context(), g, "k", fails(errors.New("boom"))).want("old", singleflight.Stale)
		synctest.Wait()
		asked := wire.Sent("load enter")
		for range 1000 {
			fetch(f, f.Context(), g, "k", never(f)).want("old", singleflight.Stale)
			time.Sleep(time.Millisecond)
		}
		redistest.AtMost(f, wire.Sent("load enter")-asked, 11, "1000 stale answers within a second asked %d times")
	})
}

// Where the holder is dead, its lease's end comes first: 100 ms are no longer
// than that.
func TestStaleRefreshAfterTheLeaseEnds(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, wire := f.open(staleFor, lease(time.Second))
		other, _ := f.open(staleFor)
		f.stalled(g, "k")
		o := newOrigin(f)
		fetch(f, f.Context(), g, "k", o.load).want("old", singleflight.Stale)
		l := o.next(f)
		wire.Cut()
		time.Sleep(950 * time.Millisecond)
		fetch(f, f.Context(), other, "k", never(f)).want("old", singleflight.Stale)
		synctest.Wait()
		time.Sleep(51 * time.Millisecond)
		fetch(f, f.Context(), other, "k", gives("new")).want("old", singleflight.Stale)
		synctest.Wait()
		fetch(f, f.Context(), other, "k", never(f)).want("new", singleflight.Cached)
		l.returns("too late")
		synctest.Wait()
	})
}

// Callers who left at SoftTimeout don't count as leaving: the load goes on,
// and its result is stored.
func TestSoftTimeoutServesStale(t *testing.T) {
	for what, mod := range map[string]config{"StaleFor": staleFor, "StaleIfError": staleIfError} {
		subBubble(t, what, func(f *fixture, _ *miniredis.Miniredis) {
			soft := func(c *singleflight.Config[string]) { c.SoftTimeout = 3 * time.Second }
			g, _ := f.open(mod, soft)
			other, _ := f.open(mod, soft)
			f.stalled(g, "k")
			o := newOrigin(f)
			began := time.Now()
			one := fetch(f, f.Context(), g, "k", o.obedient)
			l := o.next(f)
			two := fetch(f, f.Context(), other, "k", never(f))
			many := doMany(f, f.Context(), g, []string{"k"}, newBatches())
			one.want("old", singleflight.Stale)
			two.want("old", singleflight.Stale)
			redistest.NoError(f, many.got("k", "old"))
			redistest.Expect(f, time.Since(began), 3*time.Second, "after %v")
			time.Sleep(10 * time.Second)
			redistest.CheckNow(f, !l.over(), "the load ended with those who were served")
			l.returns("new")
			synctest.Wait()
			fetch(f, f.Context(), other, "k", never(f)).want("new", singleflight.Cached)
			time.Sleep(11 * time.Second)
			fresh := fetch(f, f.Context(), g, "k", o.obedient) // one that is loaded in time is worth the wait
			l = o.next(f)
			time.Sleep(2 * time.Second)
			l.returns("newer")
			fresh.want("newer", singleflight.Loaded)
			redistest.Expect(f, o.loads.Load(), 2, "%d loads")
		})
	}
}

// Stale never masks ErrNotFound.
func TestStaleDoesNotMaskNotFound(t *testing.T) {
	for what, mod := range map[string]config{"StaleFor": staleFor, "StaleIfError": staleIfError} {
		subBubble(t, what, func(f *fixture, _ *miniredis.Miniredis) {
			g, _ := f.open(mod, func(c *singleflight.Config[string]) { c.SoftTimeout = time.Second })
			f.stalled(g, "k")
			redistest.WantErr(f, fetch(f, f.Context(), g, "k", fails(singleflight.ErrNotFound)).failed(), singleflight.ErrNotFound)
			// It is the newest that is known: the value is gone, also for a caller that would
			// rather have that than a failure.
			wantNothing(f, g, "k")
			redistest.WantText(f, fetch(f, f.Context(), g, "k", fails(errors.New("boom"))).failed(), "boom")
			fetch(f, f.Context(), g, "k", gives("new")).want("new", singleflight.Loaded)
		})
	}
}

// StaleIfError serves what is stale where the loader fails, where it panics
// elsewhere, where a failure is remembered, and where Redis can't be asked to
// coordinate; not what is older.
func TestStaleIfError(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		remember := func(c *singleflight.Config[string]) { c.ErrorTTL = 5 * time.Second }
		g, _ := f.open(staleIfError, remember)
		other, wire := f.open(staleIfError, remember)
		f.stalled(g, "k")
		o := newOrigin(f)
		one := fetch(f, f.Context(), g, "k", o.load)
		l := o.next(f)
		two := fetch(f, f.Context(), other, "k", never(f))
		synctest.Wait()
		redistest.CheckNow(f, !one.ended() && !two.ended(), "served before the load failed")
		l.fails(errors.New("boom"))
		one.want("old", singleflight.Stale)
		two.want("old", singleflight.Stale)
		fetch(f, f.Context(), other, "k", never(f)).want("old", singleflight.Stale) // the failure is remembered
		m, err := other.DoMany(f.Context(), []string{"k"}, nil)
		redistest.Check(f, m["k"] == "old" && err == nil, "%v, %v", m, err)
		time.Sleep(6 * time.Second)
		panics := fetch(f, f.Context(), g, "k", o.load)
		l = o.next(f)
		two = fetch(f, f.Context(), other, "k", never(f))
		synctest.Wait()
		l.does(func() { panic("oh") })
		two.want("old", singleflight.Stale)
		redistest.Get(f, "the panic", panics.done)
		redistest.Check(f, panics.raised == "oh", "%+v", panics)
		wire.CutOff("load enter")
		fetch(f, f.Context(), other, "k", never(f)).want("old", singleflight.Stale)
		redistest.WantErr(f, redistest.ErrorOf(other.Do(f.Context(), "unknown", never(f))), leasehold.ErrUnavailable)
		wire.Heal()
		s := other.Stats()
		redistest.Check(f, s.Stale == 5 && s.Errors == 1, "%+v", s)
		time.Sleep(50 * time.Second) // more than a minute after its TTL
		redistest.WantText(f, fetch(f, f.Context(), g, "k", fails(errors.New("boom"))).failed(), "boom")
	})
}

// A caller is served the stale value that it read itself: one that has been
// invalidated since it was stored is not served to a caller that asked after that.
func TestStaleThatWasInvalidated(t *testing.T) {
	some(t, func(f *fixture) {
		short := func(c *singleflight.Config[string]) { c.TTL, c.StaleIfError = time.Millisecond, time.Minute }
		g, _ := f.open(short)
		fetch(f, f.Context(), g, "k", gives("old")).got()
		time.Sleep(5 * time.Millisecond)
		o := newOrigin(f)
		before := fetch(f, f.Context(), g, "k", o.load)
		l := o.next(f)
		redistest.WantErr(f, g.Invalidate(f.Context(), "k"))
		after := fetch(f, f.Context(), g, "k", fails(errors.New("boom")))
		l.fails(errors.New("boom"))
		before.want("old", singleflight.Stale)
		redistest.WantText(f, after.failed(), "boom")
	})
}
