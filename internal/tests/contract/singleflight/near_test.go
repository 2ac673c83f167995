package singleflight

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A hot value is served from memory by each way to read it. It is counted, and its age grows. So is a remembered
// ErrNotFound.
func TestNearServesHotValues(t *testing.T) {
	each(t, func(f *fixture) {
		g, w := f.open(nearFor(hold), func(c *singleflight.Config[string]) { c.NotFoundTTL = time.Minute })
		heat(f, g, g, "k", "v")
		before, sent := g.Stats(), w.Sent()
		first := fetch(f, f.Context(), g, "k", never(f)).Got()
		redistest.Check(f, first.Value == "v" && first.Source == singleflight.Near, "fetched %+v", first)
		redistest.Gives(g.Do(f.Context(), "k", never(f)))(f, "v")
		all, err := g.DoMany(f.Context(), []string{"k"}, nil)
		redistest.Check(f, len(all) == 1 && all["k"] == "v" && err == nil, "DoMany: %v, %v", all, err)
		later := peek(f, g, "k")
		redistest.Check(f, later.Source == singleflight.Near && later.Age > first.Age, "peeked %+v after %+v", later, first)
		after := g.Stats()
		n := after.NearHits - before.NearHits
		redistest.Check(f, n == 3 && after.Hits == before.Hits, "%d hits in memory; want 3: %+v", n, after)
		redistest.Expect(f, w.Sent()-sent, 0, "%d commands were sent for hits in memory")
		redistest.Expect(f, inspect(f, g, "k").Near, 1, "Near is %v")
		hits := g.Stats().NearHits
		redistest.Eventually(f, "ErrNotFound in memory", func() bool {
			redistest.WantErr(f, redistest.ErrorOf(g.Do(f.Context(), "none", fails(singleflight.ErrNotFound))), singleflight.ErrNotFound)
			return g.Stats().NearHits > hits
		})
		r, ok, err := g.Peek(f.Context(), "none")
		redistest.Check(f, ok && errors.Is(err, singleflight.ErrNotFound), "peeked %+v, %v, %v", r, ok, err)
		invalidate(f, g, "none")
		redistest.Gives(g.Do(f.Context(), "none", gives("v")))(f, "v")
	})
}

// A key that is read now and then costs one GET a time. It has no registration and no
// subscription, so its invalidation finds nobody.
func TestNearRegistersOnlyHotKeys(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, w := f.open(nearFor(hold))
		put(f, g, "k", "v")
		for range 3 {
			fetch(f, f.Context(), g, "k", never(f)).want("v", singleflight.Cached)
		}
		synctest.Wait()
		n := w.Sent("near read")
		redistest.Check(f, n == 0 && f.readers("k") == 0, "%d near reads, %d readers after three reads", n, f.readers("k"))
		warm(f, g, "k", "v")
		invalidate(f, g, "k")
		put(f, g, "k", "w")
		sent := w.Sent("near read")
		for range 3 {
			peek(f, g, "k")
		}
		synctest.Wait()
		redistest.Expect(f, w.Sent("near read")-sent, 0, "%d near reads of a key that was just invalidated")
	})
}

// A copy keeps its key, and not the text of the caller that the key is a part of.
func TestNearKeepsNothingOfItsCallers(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(nearFor(hold))
		text := make([]byte, 1<<20)
		copy(text, "key")
		kept := weak.Make(&text[0])
		key := unsafe.String(&text[0], 3)
		heat(f, g, g, key, "v")
		redistest.Eventually(f, "the end of the caller's text", func() bool { runtime.GC(); return kept.Value() == nil })
		wantPeek(f, g, "key", "v", singleflight.Near)
	})
}

// While a key is read, its read lease is renewed in the background: one command for three
// quarters of NearFor, and no read waits. A value that is the same is not sent again. Nothing is left of a key that is
// not read any more: no command, no subscription, no key and no goroutine.
func TestNearRenewsInTheBackground(t *testing.T) {
	bubble(t, func(f *fixture) {
		const lasts = time.Second
		g, w := f.open(nearFor(lasts), func(c *singleflight.Config[string]) { c.TTL = time.Hour })
		heat(f, g, g, "k", "v")
		reads, gets := w.Sent("near read"), w.Sent("get")
		for began := time.Now(); time.Since(began) < 30*lasts; time.Sleep(5 * time.Millisecond) {
			wantPeek(f, g, "k", "v", singleflight.Near)
			synctest.Wait()
		}
		redistest.Between(f, w.Sent("near read")-reads, 35, 45, "%d renewals in 30 times NearFor")
		redistest.Expect(f, w.Sent("get")-gets, 0, "%d GETs of a hot key")
		redistest.Expect(f, len(f.Subscribed("leasehold")), 1, "%d subscriptions of a reader")
		time.Sleep(2 * lasts)
		synctest.Wait()
		redistest.Expect(f, len(f.Subscribed("leasehold")), 0, "%d subscriptions after 2 NearFor")
		redistest.Check(f, !f.Server.Exists(f.Part("k", "near")), "the key of registrations is there after 2 NearFor")
		sent := w.Sent()
		time.Sleep(time.Minute)
		redistest.Expect(f, w.Sent()-sent, 0, "%d commands of an idle handle")
		warm(f, g, "k", "v")
	})
}

// Hits in memory draw on early refresh, and a copy causes at most one. The copy ends with the value's TTL.
func TestNearRefreshesEarlyOnce(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open(nearFor(hold), func(c *singleflight.Config[string]) {
			c.TTL, c.Jitter, c.EarlyRefresh = 30*time.Second, -1, 1
		})
		slow := func(context.Context) (string, error) { time.Sleep(5 * time.Second); return "v", nil }
		fetch(f, f.Context(), g, "k", slow).Got()
		warm(f, g, "k", "v")
		time.Sleep(25 * time.Second) // a refresh is likely from here on: the load took 5 s
		for range 100 {
			peek(f, g, "k") // refreshes nothing, and leaves the refresh to a Fetch
		}
		loads := 0
		for range 10 {
			for range 100 {
				r := redistest.Must(g.Fetch(f.Context(), "k", func(context.Context) (string, error) { loads++; return "", errors.New("no") }))(f)
				redistest.CheckNow(f, r.Source == singleflight.Near, "read %+v", r)
			}
			time.Sleep(200 * time.Millisecond)
		}
		s := g.Stats()
		redistest.Check(f, s.EarlyRefreshes == 1 && loads == 1, "%d refreshes and %d loads because of one copy; want one", s.EarlyRefreshes, loads)
		time.Sleep(30*time.Second - peek(f, g, "k").Age - 10*time.Millisecond)
		wantPeek(f, g, "k", "v", singleflight.Near)
		time.Sleep(20 * time.Millisecond)
		fetch(f, f.Context(), g, "k", gives("w")).want("w", singleflight.Loaded)
	})
}

// Close takes the registrations back, so an invalidation does not wait for a handle that is gone.
func TestNearCloseTakesRegistrationsBack(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(nearFor(hold), func(c *singleflight.Config[string]) { c.NearBytes = 64 << 10 })
		writer, _ := f.open()
		for i := range 10 { // these are taken back by their acknowledgements, and need no memory
			key := fmt.Sprint("told", i)
			heat(f, g, g, key, "v")
			invalidate(f, writer, key)
		}
		var keys []string
		for i := range 6 { // of which few find room
			keys = append(keys, fmt.Sprint(i))
			heat(f, g, g, keys[i], strings.Repeat("v", 12<<10))
		}
		put(f, g, "5", "w") // drops the own copy
		harness.Close(f, g)
		for _, key := range keys {
			redistest.Expect(f, f.readers(key), 0, "%d registrations after Close, of "+key)
		}
		redistest.AtMost(f, invalidate(f, writer, keys...), redistest.Soon, "an invalidation took %v after the reader was closed")
	})
}

// With StaleIfError a hot value survives an outage of Redis in memory: it is served as Stale, at once when Redis is
// known to be away, until TTL and StaleIfError are over. When Redis answers again, nothing is served without asking.
func TestNearValuesSurviveAnOutage(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(nearFor(time.Second), func(c *singleflight.Config[string]) {
			c.TTL, c.Jitter, c.StaleIfError = 10*time.Second, -1, time.Minute
		})
		other := mustOpen(f)
		heat(f, g, g, "k", "old")
		time.Sleep(5 * time.Second) // the read lease is over, the subscription gone
		f.goAway(g, wire)
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
		f.goAway(g, wire)
		time.Sleep(2 * time.Minute)
		redistest.WantErr(f, peekErr(f.Context(), g, "k"), leasehold.ErrUnavailable)
	})
}

// A value that was invalidated by this process, or seen to be gone, does not come back in an outage. Under LoadLocally a
// copy in memory is served only if the local load fails.
func TestNearDroppedCopyDoesNotComeBackInAnOutage(t *testing.T) {
	bubble(t, func(f *fixture) {
		other := mustOpen(f)
		for what, drop := range map[string]func(g *singleflight.Group[string], wire *harness.Wire){
			"invalidated here":      func(g *singleflight.Group[string], _ *harness.Wire) { invalidate(f, g, "k") },
			"invalidated elsewhere": func(*singleflight.Group[string], *harness.Wire) { invalidate(f, other, "k") },
			"seen to be gone": func(g *singleflight.Group[string], _ *harness.Wire) {
				time.Sleep(5 * time.Second)
				invalidate(f, other, "k")
				peek(f, g, "k")
			},
			"a newer one was loaded": func(g *singleflight.Group[string], wire *harness.Wire) {
				time.Sleep(5 * time.Second)
				wire.Refuse()
				fetch(f, f.Context(), g, "k", fails(errBoom)).want("old", singleflight.Stale)
				fetch(f, f.Context(), g, "k", gives("loaded")).want("loaded", singleflight.Loaded)
			},
		} {
			g, wire := f.open(nearFor(time.Second), locally, func(c *singleflight.Config[string]) { c.StaleIfError = time.Minute })
			heat(f, g, g, "k", "old")
			drop(g, wire)
			wire.Refuse()
			r, _, err := g.Peek(f.Context(), "k")
			redistest.Check(f, errors.Is(err, leasehold.ErrUnavailable), "%s: %+v, %v", what, r, err)
			wire.Heal()
		}
	})
}

// A caller that leaves while its codec decodes a copy does not take the copy from the others.
func TestNearCopyOutlivesACallerThatLeaves(t *testing.T) {
	bubble(t, func(f *fixture) {
		codec := &jsonCodec{}
		g, _ := f.open(nearFor(hold), func(c *singleflight.Config[string]) { c.Codec = codec })
		heat(f, g, g, "k", "v")
		over := make(chan struct{})
		codec.unmarshal = func() error { <-over; return nil }
		redistest.WantErr(f, peekErr(f.Within(time.Second), g, "k"), context.DeadlineExceeded)
		close(over)
		wantPeek(f, g, "k", "v", singleflight.Near)
	})
}

// A near read that is lost drops no copy, and reads are GETs until they work again.
func TestNearReadsThatFail(t *testing.T) {
	bubble(t, func(f *fixture) {
		const lasts = 10 * time.Second
		g, wire := f.open(nearFor(lasts), func(c *singleflight.Config[string]) { c.TTL = time.Hour })
		heat(f, g, g, "k", "v")
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
			wantPeek(f, g, "k", "v", singleflight.Near)
			time.Sleep(lasts / 100)
		}
		time.Sleep(lasts)
		tried := tries.Load()
		for range 1000 {
			wantPeek(f, g, "k", "v", singleflight.Cached)
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
			wantPeek(f, g, "k", "v", singleflight.Cached)
		}
		redistest.Expect(f, f.readers("k"), 0, "%d registrations")
		redistest.WantErr(f, f.RDB.ConfigSet(f.Context(), "maxmemory", "0").Err())
		warm(f, g, "k", "v")
	})
}
