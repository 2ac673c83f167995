package singleflight

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A hot value is served from memory by each way to read it. It is counted, and its age grows. So is a remembered
// ErrNotFound.
func TestNearServesHotValues(t *testing.T) {
	each(t, func(f *fixture) {
		g, w := f.open(nearFor(hold), func(c *singleflight.Config[string]) { c.NotFoundTTL = time.Minute })
		put(f, g, "k", "v")
		warm(f, g, "k", "v")
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
	some(t, func(f *fixture) {
		g, w := f.open(nearFor(hold))
		put(f, g, "k", "v")
		for range 3 {
			fetch(f, f.Context(), g, "k", never(f)).want("v", singleflight.Cached)
		}
		n := w.Sent("near read")
		redistest.Check(f, n == 0 && f.readers("k") == 0, "%d near reads, %d readers after three reads", n, f.readers("k"))
		warm(f, g, "k", "v")
		invalidate(f, g, "k")
		put(f, g, "k", "w")
		sent := w.Sent("near read")
		for range 3 {
			peek(f, g, "k")
		}
		redistest.Expect(f, w.Sent("near read")-sent, 0, "%d near reads of a key that was just invalidated")
	})
}

// While a key is read, its read lease is renewed in the background: one command for three
// quarters of NearFor, and no read waits. A value that is the same is not sent again.
func TestNearRenewsInTheBackground(t *testing.T) {
	bubble(t, func(f *fixture) {
		const lasts = time.Second
		g, w := f.open(nearFor(lasts), func(c *singleflight.Config[string]) { c.TTL = time.Hour })
		put(f, g, "k", "v")
		warm(f, g, "k", "v")
		reads, gets := w.Sent("near read"), w.Sent("get")
		for began := time.Now(); time.Since(began) < 30*lasts; time.Sleep(5 * time.Millisecond) {
			r := peek(f, g, "k")
			redistest.CheckNow(f, r.Source == singleflight.Near, "a read was served from %v", r.Source)
			synctest.Wait()
		}
		redistest.Between(f, w.Sent("near read")-reads, 35, 45, "%d renewals in 30 times NearFor")
		redistest.Expect(f, w.Sent("get")-gets, 0, "%d GETs of a hot key")
	})
}

// Nothing is left of a key that is not read any more: no command, no subscription, no key and no goroutine.
func TestNearLeavesNothingWhenIdle(t *testing.T) {
	bubble(t, func(f *fixture) {
		const lasts = time.Second
		g, w := f.open(nearFor(lasts), func(c *singleflight.Config[string]) { c.TTL = time.Hour })
		put(f, g, "k", "v")
		warm(f, g, "k", "v")
		redistest.Expect(f, len(f.Subscribed("leasehold")), 1, "%d subscriptions of a reader")
		time.Sleep(2 * lasts)
		synctest.Wait()
		if all := f.Subscribed("leasehold"); len(all) != 0 || f.Server.Exists(f.Part("k", "near")) {
			f.Errorf("subscriptions %v, registrations %v after 2 NearFor", all, f.Server.Exists(f.Part("k", "near")))
		}
		sent := w.Sent()
		time.Sleep(time.Minute)
		redistest.Expect(f, w.Sent()-sent, 0, "%d commands of an idle handle")
		warm(f, g, "k", "v")
	})
}

// A copy ends with the value's TTL.
func TestNearCopyEndsWithTheTTL(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open(nearFor(hold), func(c *singleflight.Config[string]) { c.TTL, c.Jitter = 3*time.Second, -1 })
		put(f, g, "k", "v")
		warm(f, g, "k", "v")
		age := peek(f, g, "k").Age
		time.Sleep(3*time.Second - age - 10*time.Millisecond)
		r := peek(f, g, "k")
		redistest.Check(f, r.Source == singleflight.Near, "before its end the copy is %+v", r)
		time.Sleep(20 * time.Millisecond)
		fetch(f, f.Context(), g, "k", gives("w")).want("w", singleflight.Loaded)
	})
}

// Hits in memory draw on early refresh, and a copy causes at most one.
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
				r := fetch1(f, g, "k", func(context.Context) (string, error) { loads++; return "", errors.New("no") })
				redistest.CheckNow(f, r.Source == singleflight.Near, "read %+v", r)
			}
			time.Sleep(200 * time.Millisecond)
		}
		s := g.Stats()
		redistest.Check(f, s.EarlyRefreshes == 1 && loads == 1, "%d refreshes and %d loads because of one copy; want one", s.EarlyRefreshes, loads)
	})
}

// fetch1 is Fetch, on this goroutine.
func fetch1(f *fixture, g *singleflight.Group[string], key string, load loader) singleflight.Result[string] {
	return redistest.Must(g.Fetch(f.Context(), key, load))(f)
}

// A copy keeps its key, and not the text of the caller that the key is a part of.
func TestNearKeepsNothingOfItsCaller(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(nearFor(hold))
		text := make([]byte, 1<<20)
		copy(text, "key")
		kept := weak.Make(&text[0])
		key := unsafe.String(&text[0], 3)
		put(f, g, key, "v")
		warm(f, g, key, "v")
		redistest.Eventually(f, "the end of the caller's text", func() bool { runtime.GC(); return kept.Value() == nil })
		r := peek(f, g, "key")
		redistest.Check(f, r.Source == singleflight.Near, "%+v", r)
	})
}

// Close takes the registrations back, so an invalidation does not wait for a handle that is gone.
func TestNearCloseTakesRegistrationsBack(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(nearFor(hold), func(c *singleflight.Config[string]) { c.NearBytes = 64 << 10 })
		writer, _ := f.open()
		for i := range 10 { // these are taken back by their acknowledgements, and need no memory
			key := fmt.Sprint("told", i)
			put(f, g, key, "v")
			warm(f, g, key, "v")
			invalidate(f, writer, key)
		}
		var keys []string
		for i := range 6 { // of which few find room
			keys = append(keys, fmt.Sprint(i))
			put(f, g, keys[i], strings.Repeat("v", 12<<10))
			warm(f, g, keys[i], strings.Repeat("v", 12<<10))
		}
		put(f, g, "5", "w") // drops the own copy
		harness.Close(f, g)
		for _, key := range keys {
			redistest.Expect(f, f.readers(key), 0, "%d registrations after Close, of "+key)
		}
		redistest.AtMost(f, invalidate(f, writer, keys...), redistest.Soon, "an invalidation took %v after the reader was closed")
	})
}
