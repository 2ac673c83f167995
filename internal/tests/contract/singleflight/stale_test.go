package singleflight

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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
	fetch(f, f.Context(), g, key, gives("old")).Got()
	time.Sleep(11 * time.Second)
}

// With StaleFor the caller that starts the refresh is served stale at once, as
// are all others meanwhile; one refreshes, in the whole fleet.
func TestStaleWhileOneRebuilds(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, _ := f.two(staleFor)
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
		fetch(f, f.Context(), other, "k", o.load).want("new", singleflight.Cached)
		redistest.Expect(f, o.loads.Load(), 1, "%d loads")
		s := g.Stats()
		redistest.Check(f, s.Stale == 10 && s.Refreshes == 1 && s.EarlyRefreshes == 0 && s.Loads == 2, "%+v", s)
		time.Sleep(70 * time.Second) // stale for a minute, and no longer
		fetch(f, f.Context(), g, "k", gives("newest")).want("newest", singleflight.Loaded)
	})
}

// A caller that was told that another rebuilds the value doesn't ask again for 100 ms, or until the lease of the other
// ends. Nor does one that was told that a failure is remembered, for as long as that is so at least, nor one whose
// refresh panicked, or got no permit of MaxLoads.
func TestStaleRefreshIsNotAskedForAgainAtOnce(t *testing.T) {
	bubble(t, func(f *fixture) {
		other, g, wire := f.two(staleFor, lease(time.Second), maxLoads(9), func(c *singleflight.Config[string]) { c.ErrorTTL = 10 * time.Second })
		o := newOrigin(f)
		servedStale := func(key string, load loader) {
			f.Helper()
			asked := wire.Sent("load enter")
			for range 1000 {
				fetch(f, f.Context(), other, key, load).want("old", singleflight.Stale)
				time.Sleep(time.Millisecond)
			}
			redistest.Between(f, wire.Sent("load enter")-asked, 5, 11, "1000 stale answers for "+key+" asked %d times")
		}
		f.stalled(g, "loaded elsewhere")
		fetch(f, f.Context(), g, "loaded elsewhere", o.load).want("old", singleflight.Stale)
		l := o.next(f)
		servedStale("loaded elsewhere", never(f))
		l.fails(errBoom)
		servedStale("loaded elsewhere", never(f)) // the failure is remembered
		f.stalled(g, "panics")
		servedStale("panics", func(context.Context) (string, error) { panic("oh no") })
		f.stalled(g, "dead")
		dead, cut := f.open(staleFor, lease(time.Second))
		fetch(f, f.Context(), dead, "dead", o.load).want("old", singleflight.Stale)
		l = o.next(f)
		cut.Cut()
		time.Sleep(950 * time.Millisecond)
		fetch(f, f.Context(), other, "dead", never(f)).want("old", singleflight.Stale)
		time.Sleep(51 * time.Millisecond)
		fetch(f, f.Context(), other, "dead", gives("new")).want("old", singleflight.Stale)
		fetch(f, f.Context(), other, "dead", never(f)).want("new", singleflight.Cached)
		l.returns("too late")
		f.stalled(g, "no permit")
		f.RDB.Set(f.Context(), f.Part("", "holders"), "of another type", 0)
		servedStale("no permit", never(f))
	})
}

// Callers that left at SoftTimeout don't count as leaving: the load goes on, and its result is stored. Stale never masks
// ErrNotFound, also of a load in another process.
func TestStaleAtSoftTimeout(t *testing.T) {
	for what, mod := range map[string]config{"StaleFor": staleFor, "StaleIfError": staleIfError} {
		subBubble(t, what, func(f *fixture) {
			g, other, _ := f.two(mod, func(c *singleflight.Config[string]) { c.SoftTimeout = 3 * time.Second })
			f.stalled(g, "k")
			o := newOrigin(f)
			began := time.Now()
			one, l := begin(f, f.Context(), g, "k", o, o.obedient)
			two := fetch(f, f.Context(), other, "k", never(f))
			many := doMany(f, f.Context(), g, []string{"k"}, newBatches())
			one.want("old", singleflight.Stale)
			two.want("old", singleflight.Stale)
			redistest.NoError(f, many.got("k", "old"))
			redistest.Expect(f, time.Since(began), 3*time.Second, "after %v")
			time.Sleep(10 * time.Second)
			redistest.CheckNow(f, !l.over(), "the load ended with the callers that were served")
			l.returns("new")
			fetch(f, f.Context(), other, "k", never(f)).want("new", singleflight.Cached)
			time.Sleep(11 * time.Second)
			fresh := fetch(f, f.Context(), g, "k", o.obedient) // one that is loaded in time is worth the wait
			l = o.next(f)
			time.Sleep(2 * time.Second)
			l.returns("newer")
			fresh.want("newer", singleflight.Loaded)
			redistest.Expect(f, o.loads.Load(), 2, "%d loads")

			time.Sleep(11 * time.Second)
			one, l = begin(f, f.Context(), g, "k", o, o.load)
			two = fetch(f, f.Context(), other, "k", never(f))
			l.fails(singleflight.ErrNotFound)
			redistest.WantErr(f, one.Failed(), singleflight.ErrNotFound)
			redistest.WantErr(f, two.Failed(), singleflight.ErrNotFound)
			// It is the newest that is known: the value is gone, also for a caller that would
			// rather have that than a failure.
			wantNothing(f, g, "k")
			redistest.WantText(f, fetch(f, f.Context(), g, "k", fails(errBoom)).Failed(), "boom")
			fetch(f, f.Context(), g, "k", gives("new")).want("new", singleflight.Loaded)
		})
	}
}

// StaleIfError serves what is stale where the loader fails, where it panics elsewhere, where a failure is remembered,
// and where Redis can't be asked to coordinate; not what is older. A caller is served the stale value that it read itself:
// one that has been invalidated since it was stored is not served to a caller that asked after that.
func TestStaleIfError(t *testing.T) {
	bubble(t, func(f *fixture) {
		other, g, wire := f.two(staleIfError, func(c *singleflight.Config[string]) { c.ErrorTTL = 5 * time.Second })
		f.stalled(g, "k")
		one, l, o := f.loading(g, "k")
		two := fetch(f, f.Context(), other, "k", never(f))
		redistest.CheckNow(f, !one.Ended() && !two.Ended(), "served before the load failed")
		l.fails(errBoom)
		one.want("old", singleflight.Stale)
		two.want("old", singleflight.Stale)
		fetch(f, f.Context(), other, "k", never(f)).want("old", singleflight.Stale) // the failure is remembered
		m, err := other.DoMany(f.Context(), []string{"k"}, nil)
		redistest.Check(f, m["k"] == "old" && err == nil, "%v, %v", m, err)
		time.Sleep(6 * time.Second)
		panics := fetch(f, f.Context(), g, "k", o.load)
		l = o.next(f)
		two = fetch(f, f.Context(), other, "k", never(f))
		l.does(func() { panic("oh") })
		two.want("old", singleflight.Stale)
		redistest.Get(f, "the panic", panics.Done)
		redistest.Check(f, panics.raised == "oh", "%+v", panics)
		wire.CutOff("load enter")
		fetch(f, f.Context(), other, "k", never(f)).want("old", singleflight.Stale)
		redistest.WantErr(f, redistest.ErrorOf(other.Do(f.Context(), "unknown", never(f))), leasehold.ErrUnavailable)
		wire.Heal()
		s := other.Stats()
		redistest.Check(f, s.Stale == 5 && s.Errors == 1, "%+v", s)
		time.Sleep(50 * time.Second) // more than a minute after its TTL
		redistest.WantText(f, fetch(f, f.Context(), g, "k", fails(errBoom)).Failed(), "boom")
		f.stalled(g, "l")
		before, l, _ := f.loading(g, "l")
		redistest.WantErr(f, g.Invalidate(f.Context(), "l"))
		after := fetch(f, f.Context(), g, "l", fails(errBoom))
		l.fails(errBoom)
		before.want("old", singleflight.Stale)
		redistest.WantText(f, after.Failed(), "boom")
	})
}

func early(beta float64) config {
	return func(c *singleflight.Config[string]) {
		c.TTL, c.Jitter, c.EarlyRefresh = time.Hour, -1, beta
		c.LeaseTTL = 1000 * time.Hour // so that a long load is not renewed thousands of times
	}
}

// EarlyRefresh rebuilds a fresh value in the background, the likelier the dearer it
// was; the caller has the one that is there, also if the refresh fails.
func TestEarlyRefresh(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open(early(100), func(c *singleflight.Config[string]) { c.NotFoundTTL = time.Hour })
		dear := func(v string, err error) loader { // so dear that 100 times that is almost surely more than TTL
			return func(context.Context) (string, error) { time.Sleep(24 * time.Hour); return v, err }
		}
		redistest.Gives(g.Do(f.Context(), "k", dear("1", nil)))(f, "1")
		m, err := g.DoMany(f.Context(), []string{"k"}, func(context.Context, []string) (map[string]string, error) { return nil, errBoom })
		redistest.Check(f, m["k"] == "1" && err == nil, "beside a refresh that fails: %v, %v", m, err)
		time.Sleep(time.Second)
		o := newOrigin(f)
		for range 20 {
			fetch(f, f.Context(), g, "k", o.load).want("1", singleflight.Cached)
		}
		o.next(f).returns("2")
		synctest.Wait()
		redistest.Expect(f, o.loads.Load(), 1, "%d loads")
		fetch(f, f.Context(), g, "k", never(f)).want("2", singleflight.Cached) // it took no time: no need to hurry
		redistest.Expect(f, g.Stats(), (singleflight.Stats{Hits: 22, Loaded: 1, Loads: 3, Refreshes: 2, EarlyRefreshes: 2, FailedLoads: 1}), "%+v")
		const nothing = "a remembered ErrNotFound is not refreshed"
		redistest.WantErr(f, redistest.ErrorOf(g.Do(f.Context(), nothing, dear("", singleflight.ErrNotFound))), singleflight.ErrNotFound)
		for range 20 {
			redistest.WantErr(f, fetch(f, f.Context(), g, nothing, never(f)).Failed(), singleflight.ErrNotFound)
		}
	})
}

// The formula: of many processes that look at a time Δ before the end of a value
// that took d to load, the part that refreshes is exp(-Δ / (β d)).
func TestEarlyRefreshIsXFetch(t *testing.T) {
	bubble(t, func(f *fixture) {
		const keys, took = 400, 5 * time.Minute
		g, _ := f.open(early(2))
		var all []*pending[string]
		for i := range keys {
			all = append(all, fetch(f, f.Context(), g, fmt.Sprint(i), func(context.Context) (string, error) {
				time.Sleep(took)
				return "1", nil
			}))
		}
		for _, p := range all {
			<-p.Done
			p.Got()
		}
		time.Sleep(50 * time.Minute) // 10 min before the end, β d is 10 min
		for i := range keys {
			redistest.Must(g.Do(f.Context(), fmt.Sprint(i), gives("v")))(f)
		}
		synctest.Wait()
		redistest.Between(f, g.Stats().EarlyRefreshes, 99, 195, "%d were refreshed") // 147 are expected; five sigma are 48
	})
}
