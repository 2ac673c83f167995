package singleflight

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// plain is a Config without what is random.
func plain(c *singleflight.Config[string]) { c.Jitter = -1 }

func TestOneLoadInTheFleet(t *testing.T) {
	each(t, func(f *fixture) {
		o := newOrigin(f)
		var all []*pending[string]
		for range 3 {
			g, _ := f.open()
			for range 20 {
				all = append(all, fetch(f, f.Context(), g, "k", o.load))
			}
		}
		l := o.next(f)
		redistest.Eventually(f, "two processes to wait", func() bool { return f.Queued("k") == 2 })
		l.returns("v")
		sources := map[singleflight.Source]int{}
		for _, p := range all {
			r := p.Got()
			redistest.CheckNow(f, r.Value == "v", "%+v", r)
			sources[r.Source]++
		}
		n := o.loads.Load()
		redistest.CheckNow(f, n == 1 && sources[singleflight.Loaded] == 1 && sources[singleflight.Stale] == 0, "%d loads, sources %v", n, sources)
	})
}

// Each Source, with the age that comes with it.
func TestSourceAndAge(t *testing.T) {
	bubble(t, func(f *fixture) {
		mod := func(c *singleflight.Config[string]) { c.TTL, c.StaleFor, c.Jitter = 10*time.Second, time.Minute, -1 }
		g, other := f.two(mod)
		o := newOrigin(f)
		want := func(p *pending[string], value string, source singleflight.Source, age time.Duration) {
			f.Helper()
			r := p.Got()
			redistest.CheckNow(f, r.Value == value && r.Source == source && r.Age == age, "%+v, want %q, %v, %v old", r, value, source, age)
		}
		first, l := begin(f, f.Context(), g, "k", o, o.load)
		joins, waits := fetch(f, f.Context(), g, "k", never(f)), fetch(f, f.Context(), other, "k", never(f))
		time.Sleep(time.Second)
		l.returns("1")
		want(first, "1", singleflight.Loaded, 0)
		want(joins, "1", singleflight.Shared, 0)
		want(waits, "1", singleflight.Shared, 0)
		time.Sleep(4 * time.Second)
		want(fetch(f, f.Context(), other, "k", never(f)), "1", singleflight.Cached, 4*time.Second)
		time.Sleep(6 * time.Second) // by now its TTL is over
		want(fetch(f, f.Context(), other, "k", o.load), "1", singleflight.Stale, 10*time.Second)
		time.Sleep(time.Second)
		want(fetch(f, f.Context(), g, "k", never(f)), "1", singleflight.Stale, 11*time.Second)
		o.next(f).returns("2")
		time.Sleep(time.Second)
		want(fetch(f, f.Context(), g, "k", never(f)), "2", singleflight.Cached, time.Second)
		redistest.Expect(f, g.Stats(), (singleflight.Stats{Hits: 1, Stale: 1, Loaded: 1, Shared: 1, Loads: 1}), "%+v")
		redistest.Expect(f, other.Stats(), (singleflight.Stats{Hits: 1, Stale: 1, Shared: 1, Loads: 1, Refreshes: 1}), "%+v")
	})
}

// What a caller does to its value shows in no other's, nor in the cache.
func TestEachCallerGetsItsOwnValue(t *testing.T) {
	some(t, func(f *fixture) {
		type value = map[string][]int
		ownValues(f, "map", func() value { return value{"a": {1, 2, 3}} }, func(v value) { v["a"][0], v["b"] = 99, nil })
		ownValues(f, "bytes", func() []byte { return []byte("value") }, func(v []byte) { clear(v) })
	})
}

func ownValues[T any](f *fixture, key string, fresh func() T, spoil func(T)) {
	g, _ := openOf[T](f)
	other, _ := openOf[T](f)
	began, end := make(chan struct{}), make(chan struct{})
	load := func(context.Context) (T, error) {
		close(began)
		<-end
		return fresh(), nil
	}
	all := []*pending[T]{fetch(f, f.Context(), g, key, load)}
	redistest.Get(f, "the load", began)
	for range 3 {
		all = append(all, fetch(f, f.Context(), g, key, load), fetch(f, f.Context(), other, key, load))
	}
	redistest.Eventually(f, "the other process", func() bool { return inspect(f, g, key).Waiting == 1 })
	close(end)
	redistest.Get(f, "a value", all[0].Done)
	for range 3 {
		all = append(all, fetch(f, f.Context(), g, key, load))
	}
	for _, p := range all {
		r := p.Got()
		redistest.CheckNow(f, reflect.DeepEqual(r.Value, fresh()), "a caller got another's %v (%v)", r.Value, r.Source)
		spoil(r.Value)
	}
}

// A hit is one GET; a cold miss is three round trips for the process that loads. One that waits needs two and the
// subscription, behind which it asks once whether it missed a message; for a large value one more.
func TestRoundTrips(t *testing.T) {
	each(t, func(f *fixture) {
		f.teach()
		for key, c := range map[string]struct {
			value string
			gets  int // of the one that waits
		}{"small": {"v", 1}, "large": {strings.Repeat("large", 1000), 2}} {
			g, wire := f.open(plain)
			other, others := f.open(plain)
			knowClocks(f, g, key)
			knowClocks(f, other, key)
			o := newOrigin(f)
			trips, waits := wire.TripCounter(), others.TripCounter()
			first, l := begin(f, f.Context(), g, key, o, o.load)
			second := fetch(f, f.Context(), other, key, never(f))
			redistest.Eventually(f, "the subscription", func() bool { return others.Answered("load ask") == 1 })
			l.returns(c.value)
			first.Got()
			redistest.Expect(f, trips(), harness.TripCount{Gets: 1, Scripts: 2}, "a miss costs %+v")
			redistest.Expect(f, second.Got().Value, c.value, "another value")
			redistest.Expect(f, waits(), harness.TripCount{Gets: c.gets, Scripts: 2}, "waiting costs %+v")
			fetch(f, f.Context(), other, key, never(f)).Got()
			redistest.Expect(f, waits(), harness.TripCount{Gets: 1}, "a hit costs %+v")
			redistest.WantErr(f, g.Invalidate(f.Context(), key))
			redistest.Expect(f, trips(), harness.TripCount{Scripts: 1}, "an invalidation costs %+v")
		}
	})
}

// knowClocks has a handle ask the servers of keys for their clocks.
func knowClocks[T any](f *fixture, g *singleflight.Group[T], keys ...string) {
	f.Helper()
	for _, key := range keys {
		_, _, err := g.Peek(f.Context(), key)
		redistest.CheckNow(f, err == nil, "%v", err)
	}
}

// Here are ways in which other caches have served what was invalidated, or let everybody load at once.

// A caller that asks after Invalidate returned gets nothing that was loaded before, and the load that it met is stored
// by nobody: not in the process of the load, where it is joined, nor in another, where it is waited for, nor later.
func TestInvalidateDuringALoad(t *testing.T) {
	each(t, func(f *fixture) {
		for _, waited := range []bool{false, true} {
			key := fmt.Sprint(waited)
			g, other := f.two()
			third, _ := f.open()
			first, l, o := f.loading(g, key)
			var waits *pending[string]
			if waited {
				waits = fetch(f, f.Context(), other, key, never(f))
				redistest.Eventually(f, "the other", func() bool { return f.Queued(key) == 1 })
			}
			redistest.WantErr(f, third.Invalidate(f.Context(), key))
			var after []*pending[string]
			for _, h := range []*singleflight.Group[string]{g, other, third} {
				after = append(after, fetch(f, f.Context(), h, key, o.load))
			}
			l2 := o.next(f)
			l.returns("old")
			first.want("old", singleflight.Loaded)
			if waited {
				waits.want("old", singleflight.Shared)
			}
			s := inspect(f, g, key)
			redistest.Check(f, !s.Cached && s.Loading, "after the old load: %+v", s)
			l2.returns("new")
			for _, p := range append(after, fetch(f, f.Context(), g, key, never(f))) {
				p.wantValue("new")
			}
			redistest.Expect(f, o.loads.Load(), 2, "%d loads")
		}
	})
}
