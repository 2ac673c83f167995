package singleflight

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// hold is a NearFor so long that nothing passes by the end of a read lease alone.
const hold = time.Minute

// nearFor makes a group serve hot values from memory.
func nearFor(d time.Duration) config { return func(c *singleflight.Config[string]) { c.NearFor = d } }

// put stores a value.
func put(tb testing.TB, g *singleflight.Group[string], key, v string) {
	tb.Helper()
	redistest.WantErr(tb, g.Put(tb.Context(), key, v))
}

// invalidate drops keys, and returns how long that took.
func invalidate(tb testing.TB, g *singleflight.Group[string], keys ...string) time.Duration {
	tb.Helper()
	began := time.Now()
	redistest.WantErr(tb, g.Invalidate(tb.Context(), keys...))
	return time.Since(began)
}

// peek is what a group has of a key.
func peek(tb testing.TB, g *singleflight.Group[string], key string) singleflight.Result[string] {
	tb.Helper()
	r, _, err := g.Peek(tb.Context(), key)
	redistest.WantErr(tb, err)
	return r
}

// warm reads a key until it is served from memory.
func warm(tb testing.TB, g *singleflight.Group[string], key, want string) {
	tb.Helper()
	redistest.Eventually(tb, key+" in memory", func() bool {
		r := peek(tb, g, key)
		redistest.CheckNow(tb, r.Value == want, "read %+v; want %q", r, want)
		return r.Source == singleflight.Near
	})
}

// readers is the number of handles that are registered as readers of a key.
func (f *fixture) readers(key string) int {
	f.Helper()
	n := redistest.Must(f.RDB.ZCard(f.Context(), f.Part(key, "near")).Result())(f)
	return int(n)
}
