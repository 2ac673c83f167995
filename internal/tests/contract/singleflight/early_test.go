package singleflight

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// loadFor has a value of "1" that took d to load.
func (f *fixture) loadFor(g *singleflight.Group[string], key string, d time.Duration) {
	f.Helper()
	p := fetch(f, f.Context(), g, key, func(context.Context) (string, error) { time.Sleep(d); return "1", nil })
	<-p.done
	p.got()
}

func early(beta float64) config {
	return func(c *singleflight.Config[string]) {
		c.TTL, c.Jitter, c.EarlyRefresh = time.Hour, -1, beta
		c.LeaseTTL = 1000 * time.Hour // so that a long load is not renewed thousands of times
	}
}

// EarlyRefresh rebuilds a fresh value in the background, the likelier the dearer it
// was; the caller has the one that is there. 0 never does.
func TestEarlyRefresh(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(early(100))
		f.loadFor(g, "k", 24*time.Hour) // so dear that 100 times that is almost surely more than TTL
		o := newOrigin(f)
		for range 20 {
			fetch(f, f.Context(), g, "k", o.load).want("1", singleflight.Cached)
		}
		o.next(f).returns("2")
		synctest.Wait()
		redistest.Expect(f, o.loads.Load(), 1, "%d loads")
		fetch(f, f.Context(), g, "k", never(f)).want("2", singleflight.Cached) // it took no time: no need to hurry
		s := g.Stats()
		redistest.Check(f, s.EarlyRefreshes == 1 && s.Refreshes == 1 && s.Hits == 21 && s.Stale == 0, "%+v", s)
		off, _ := f.open(early(0))
		f.loadFor(off, "off", 24*time.Hour)
		time.Sleep(time.Hour - time.Millisecond)
		for range 100 {
			fetch(f, f.Context(), off, "off", never(f)).want("1", singleflight.Cached)
		}
	})
}

// The formula: of many processes that look at a time Δ before the end of a value
// that took d to load, the part that refreshes is exp(-Δ / (β d)).
func TestEarlyRefreshIsXFetch(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
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
			<-p.done
			p.got()
		}
		time.Sleep(50 * time.Minute) // 10 min before the end, β d is 10 min
		for i := range keys {
			redistest.Must(g.Do(f.Context(), fmt.Sprint(i), gives("v")))(f)
		}
		synctest.Wait()
		if n := g.Stats().EarlyRefreshes; n < 99 || n > 195 { // 147 are expected; five sigma are 48
			f.Errorf("%d of %d were refreshed, want some 147", n, keys)
		}
	})
}

// An early refresh that fails leaves the value that is there, and one of DoMany
// counts as well.
func TestEarlyRefreshThatFails(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(early(100), func(c *singleflight.Config[string]) { c.ErrorTTL = time.Minute })
		f.loadFor(g, "k", 24*time.Hour)
		fetch(f, f.Context(), g, "k", fails(errors.New("boom"))).want("1", singleflight.Cached)
		synctest.Wait()
		fetch(f, f.Context(), g, "k", never(f)).want("1", singleflight.Cached)
		time.Sleep(time.Minute)
		m, err := g.DoMany(f.Context(), []string{"k"}, newBatches().load)
		redistest.Check(f, m["k"] == "1" && err == nil, "%v, %v", m, err)
		synctest.Wait()
		fetch(f, f.Context(), g, "k", never(f)).want("K", singleflight.Cached)
		s := g.Stats()
		redistest.Check(f, s.EarlyRefreshes == 2 && s.FailedLoads == 1 && s.Errors == 0, "%+v", s)
	})
}

// A remembered ErrNotFound isn't refreshed early.
func TestNotFoundIsNotRefreshedEarly(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(early(100), func(c *singleflight.Config[string]) { c.NotFoundTTL = time.Hour })
		nothing := fetch(f, f.Context(), g, "k", func(context.Context) (string, error) {
			time.Sleep(24 * time.Hour)
			return "", singleflight.ErrNotFound
		})
		<-nothing.done
		for range 20 {
			redistest.WantErr(f, fetch(f, f.Context(), g, "k", never(f)).failed(), singleflight.ErrNotFound)
		}
	})
}
