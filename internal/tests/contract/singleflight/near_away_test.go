package singleflight

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// With StaleIfError a hot value survives an outage of Redis in memory: it is served as Stale, at once when Redis is
// known to be away, until TTL and StaleIfError are over. When Redis answers again, nothing is served without asking.
func TestNearValuesSurviveAnOutage(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(nearFor(time.Second), func(c *singleflight.Config[string]) {
			c.TTL, c.Jitter, c.StaleIfError = 10*time.Second, -1, time.Minute
		})
		other := mustOpen(f)
		put(f, g, "k", "old")
		warm(f, g, "k", "old")
		time.Sleep(5 * time.Second) // the read lease is over, the subscription gone
		f.goAwayFrom(g, wire)
		for range 5 {
			began := time.Now()
			fetch(f, f.Context(), g, "k", never(f)).want("old", singleflight.Stale)
			r := peek(f, g, "k")
			redistest.Check(f, r.Value == "old" && r.Source == singleflight.Stale && r.Age >= 5*time.Second, "peeked %+v", r)
			all, err := g.DoMany(f.Context(), []string{"k"}, nil)
			redistest.Check(f, all["k"] == "old" && err == nil, "DoMany: %v, %v", all, err)
			redistest.AtMost(f, time.Since(began), 400*time.Millisecond, "three calls took %v while Redis is known to be away")
			time.Sleep(10 * time.Second)
		}
		put(f, other, "k", "new")
		wire.Heal()
		time.Sleep(time.Second)
		fetch(f, f.Context(), g, "k", never(f)).want("new", singleflight.Cached)
		warm(f, g, "k", "new")
		time.Sleep(5 * time.Second)
		f.goAwayFrom(g, wire)
		time.Sleep(2 * time.Minute)
		_, _, err := g.Peek(f.Context(), "k")
		redistest.WantErr(f, err, leasehold.ErrUnavailable)
	})
}

// goAwayFrom is goAway for a group whose Peek is served from memory.
func (f *fixture) goAwayFrom(g *singleflight.Group[string], w *harness.Wire) {
	f.Helper()
	synctest.Wait()
	w.GoAway(func() { peek(f, g, "k") })
}

// Under LoadLocally a copy in memory is served only if the local load fails.
func TestNearCopyIsTheLastResortOfLoadLocally(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(nearFor(time.Second), func(c *singleflight.Config[string]) {
			c.StaleIfError, c.OnUnavailable = time.Minute, singleflight.LoadLocally
		})
		put(f, g, "k", "old")
		warm(f, g, "k", "old")
		time.Sleep(5 * time.Second)
		wire.Refuse()
		fetch(f, f.Context(), g, "k", fails(errors.New("no"))).want("old", singleflight.Stale)
		fetch(f, f.Context(), g, "k", gives("loaded")).want("loaded", singleflight.Loaded)
		redistest.WantErr(f, peekErr(f.Context(), g, "k"), leasehold.ErrUnavailable) // the copy was older than what a call got
	})
}

// A value that was invalidated by this process, or seen to be gone, does not come back in an outage.
func TestNearDroppedCopyDoesNotComeBackInAnOutage(t *testing.T) {
	bubble(t, func(f *fixture) {
		other := mustOpen(f)
		for what, drop := range map[string]func(g *singleflight.Group[string]){
			"invalidated here":      func(g *singleflight.Group[string]) { invalidate(f, g, "k") },
			"invalidated elsewhere": func(*singleflight.Group[string]) { invalidate(f, other, "k") },
			"seen to be gone": func(g *singleflight.Group[string]) {
				time.Sleep(5 * time.Second)
				invalidate(f, other, "k")
				peek(f, g, "k")
			},
		} {
			g, wire := f.open(nearFor(time.Second), func(c *singleflight.Config[string]) { c.StaleIfError = time.Minute })
			put(f, g, "k", "old")
			warm(f, g, "k", "old")
			drop(g)
			wire.Refuse()
			r, _, err := g.Peek(f.Context(), "k")
			redistest.Check(f, errors.Is(err, leasehold.ErrUnavailable), "%s: %+v, %v", what, r, err)
			wire.Heal()
		}
	})
}

// A near read that is lost drops no copy, and reads are GETs until they work again.
func TestNearReadsThatFail(t *testing.T) {
	bubble(t, func(f *fixture) {
		const lasts = 10 * time.Second
		g, wire := f.open(nearFor(lasts), func(c *singleflight.Config[string]) { c.TTL = time.Hour })
		put(f, g, "k", "v")
		warm(f, g, "k", "v")
		var tries atomic.Int32
		wire.Fail(func(name string) error {
			if name != "near read" {
				return nil
			}
			tries.Add(1)
			return harness.ErrCut
		})
		time.Sleep(lasts * 8 / 10)
		for range 10 {
			r := peek(f, g, "k")
			redistest.Check(f, r.Source == singleflight.Near, "after a renewal that failed: %+v", r)
			time.Sleep(lasts / 100)
		}
		time.Sleep(lasts)
		tried := tries.Load()
		for range 1000 {
			r := peek(f, g, "k")
			redistest.Check(f, r.Source == singleflight.Cached && r.Value == "v", "while near reads fail: %+v", r)
			time.Sleep(time.Millisecond)
		}
		redistest.Between(f, tries.Load()-tried, 1, 3, "%d near reads in a second while they fail")
		wire.Heal()
		time.Sleep(time.Second)
		warm(f, g, "k", "v")
	})
}

// A call that read a newer value outdates copies and near reads under way: a later hit in memory is never older.
func TestNearHitIsNeverOlderThanWhatACallGot(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(nearFor(hold))
		put(f, g, "k", "v2")
		v2 := f.RDB.Get(f.Context(), f.Part("k", "value")).Val()
		time.Sleep(time.Millisecond) // another time of publication
		put(f, g, "k", "v1")
		release := readUnderWay(f, g, wire)
		// As a refresh changes the value, which tells no reader.
		redistest.WantErr(f, f.RDB.Set(f.Context(), f.Part("k", "value"), v2, time.Minute).Err())
		r := peek(f, g, "k")
		redistest.CheckNow(f, r.Value == "v2", "read %+v", r)
		release()
		for range 20 {
			redistest.Require(f, peek(f, g, "k").Value, "v2", "after v2 a call got %q")
			synctest.Wait()
		}
	})
}

// readUnderWay reads k until the reply to a near read is held up in a bubble. release lets it arrive.
func readUnderWay(f *fixture, g *singleflight.Group[string], w *harness.Wire) (release func()) {
	f.Helper()
	f.teach() // so that the reply is no question for the script
	reads, deliver := w.Sent("near read"), w.StallReplies("near read")
	redistest.Eventually(f, "a near read", func() bool { peek(f, g, "k"); return w.Sent("near read") > reads })
	synctest.Wait()
	return func() { deliver(); synctest.Wait() }
}

// A server that is full still answers, and nothing is registered: reads are GETs.
func TestNearReadsOfAFullServer(t *testing.T) {
	t.Parallel()
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		if target.Kind != redistest.KindSingle {
			t.Skip("one server of each version will do")
		}
		srv := redistest.StartServer(t, target.Version)
		f := &fixture{harness.NewOn(t, harness.Loads, srv.Client())}
		g := openOn(f, srv.Client(), nearFor(hold))
		put(f, g, "k", "v")
		redistest.WantErr(f, f.RDB.ConfigSet(f.Context(), "maxmemory", "1").Err())
		for range 50 {
			r := peek(f, g, "k")
			redistest.CheckNow(f, r.Value == "v" && r.Source == singleflight.Cached, "read %+v", r)
		}
		redistest.Expect(f, f.readers("k"), 0, "%d registrations")
		redistest.WantErr(f, f.RDB.ConfigSet(f.Context(), "maxmemory", "0").Err())
		warm(f, g, "k", "v")
	})
}
