package singleflight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A group that is idle needs no Close: it has no goroutine, or the bubble would not end, and no subscription.
func TestIdleGroupNeedsNoClose(t *testing.T) {
	bubble(t, func(f *fixture) {
		var groups []*singleflight.Group[string]
		for range 2 {
			g := redistest.Must(singleflight.New(f.Connect(&harness.Wire{Patience: clientPatience}), singleflight.Config[string]{Name: f.Family, TTL: time.Minute, MaxLoads: 1}))(f)
			groups = append(groups, g)
		}
		o := newOrigin(f)
		first := fetch(f, f.Context(), groups[0], "k", o.load)
		l := o.next(f)
		waits, permit := fetch(f, f.Context(), groups[1], "k", never(f)), fetch(f, f.Context(), groups[1], "else", gives("v"))
		synctest.Wait()
		n := len(f.server.PubSubChannels("*"))
		redistest.Check(f, n != 0, "nobody had a subscription")
		l.returns("v")
		first.got()
		waits.got()
		permit.got()
		time.Sleep(2 * time.Second)
		all := f.server.PubSubChannels("*")
		redistest.Check(f, len(all) == 0, "subscribed yet: %v", all)
	})
}

// A message that came before the subscription stood is asked for as soon as it stands.
func TestMissedMessageIsAskedForAtOnce(t *testing.T) {
	bubble(t, func(f *fixture) {
		other, g, wire := f.pair()
		fetch(f, f.Context(), other, "warm", gives("v")).got() // it is connected
		first, l, _ := f.loading(g, "k")
		wire.HoldDials()
		waits := fetch(f, f.Context(), other, "k", never(f))
		synctest.Wait()
		l.returns("v")
		first.got()
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		wire.Heal()
		waits.want("v", singleflight.Shared)
		redistest.AtMost(f, time.Since(began), 50*time.Millisecond, "told after %v")
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
		synctest.Wait()
		wire.Heal()
		synctest.Wait()
		redistest.CheckNow(f, !joins.ended(), "%+v, %v", joins.result, joins.err)
		l.returns("new")
		joins.want("new", singleflight.Shared)
	})
}

// A key of a wrong type in Redis is that key's error, and no other's of a batch.
func TestForeignKeys(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open()
		f.RDB.RPush(f.Context(), f.Part("list", "value"), "x")
		f.RDB.Set(f.Context(), f.Part("string", "holders"), "x", time.Minute)
		for _, key := range []string{"list", "string"} {
			err := fetch(f, f.Context(), g, key, never(f)).failed()
			redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Says("WRONGTYPE", f.Family+"/"+key))
		}
		err := doMany(f, f.Context(), g, []string{"a", "list", "string", "b"}, newBatches()).got("a", "A", "b", "B")
		redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Says("WRONGTYPE", f.Family+"/list", f.Family+"/string"))
		redistest.Expect(f, f.RDB.Get(f.Context(), f.Part("string", "holders")).Val(), "x", "the foreign key holds %q")
	})
}

// A DoMany of everything at once: fresh, stale, remembered as missing, loaded here, loaded elsewhere, and failing.
func TestDoManyOfEverything(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other := f.two(staleFor, func(c *singleflight.Config[string]) { c.NotFoundTTL = time.Hour })
		fetch(f, f.Context(), g, "nothing", fails(singleflight.ErrNotFound)).failed()
		f.stalled(g, "stale")
		fetch(f, f.Context(), g, "fresh", gives("fresh")).got()
		o, b := newOrigin(f), newBatches()
		theirs, l := begin(f, f.Context(), other, "theirs", o, o.load)
		m := doMany(f, f.Context(), g, []string{"fresh", "own", "stale", "theirs", "nothing", "own too"}, b)
		synctest.Wait()
		l.returns("theirs")
		theirs.got()
		err := m.got("fresh", "fresh", "own", "OWN", "stale", "old", "theirs", "theirs", "own too", "OWN TOO")
		redistest.WantErr(f, err, singleflight.ErrNotFound, redistest.Says(f.Family+"/nothing"))
		synctest.Wait()
		redistest.Expect(f, g.Stats(), (singleflight.Stats{Hits: 2, Stale: 1, Loaded: 4, Shared: 1, Errors: 1, Loads: 5, Refreshes: 1}), "%+v")
		fetch(f, f.Context(), g, "stale", never(f)).want("STALE", singleflight.Cached)
	})
}
