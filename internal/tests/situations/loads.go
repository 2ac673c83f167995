package situations

import (
	"context"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Loads are the situations of cached values.
var Loads = []Situation{
	{
		Name: "loaded by one, shared by another, hit, and served stale",
		Want: map[Told]int{
			{leasehold.EventLoadStarted, flt, ""}:                 2,
			{leasehold.EventLoadEnded, flt, leasehold.OutcomeOK}:  2,
			{leasehold.EventPublished, flt, leasehold.OutcomeOK}:  2,
			{leasehold.EventLookup, flt, leasehold.OutcomeLoaded}: 1,
			{leasehold.EventLookup, flt, leasehold.OutcomeShared}: 1,
			{leasehold.EventLookup, flt, leasehold.OutcomeHit}:    1,
			{leasehold.EventLookup, flt, leasehold.OutcomeStale}:  1,
		},
		run: func(s *stage) {
			cfg := singleflight.Config[string]{TTL: time.Minute, Jitter: -1, StaleFor: time.Minute}
			a, b := s.cache(s.a, cfg), s.cache(s.b, cfg)
			slow := func(context.Context) (string, error) { time.Sleep(time.Second); return "v", nil }
			done := make(chan error)
			go func() { _, err := a.Do(s.Context(), "k", slow); done <- err }()
			synctest.Wait()
			_, err := b.Do(s.Context(), "k", slow)
			s.must(err)
			s.must(<-done)
			_, err = b.Do(s.Context(), "k", slow)
			s.must(err)
			time.Sleep(time.Minute)
			_, err = b.Do(s.Context(), "k", slow)
			s.must(err)
			time.Sleep(2 * time.Second) // for the refresh
		},
	},
	{
		Name: "a loader that fails, and one that finds nothing",
		Want: map[Told]int{
			{leasehold.EventLoadEnded, flt, leasehold.OutcomeError}:    1,
			{leasehold.EventLoadEnded, flt, leasehold.OutcomeNotFound}: 1,
			{leasehold.EventLookup, flt, leasehold.OutcomeHit}:         1,
		},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{TTL: time.Minute, NotFoundTTL: time.Minute})
			var n atomic.Int64
			_, _ = g.Do(s.Context(), "failing", loads(&n, "", errOrigin))
			_, _ = g.Do(s.Context(), "absent", loads(&n, "", singleflight.ErrNotFound))
			_, _ = g.Do(s.Context(), "absent", loads(&n, "", singleflight.ErrNotFound))
			redistest.Check(s, n.Load() == 2, "%d loads, want 2", n.Load())
		},
	},
	{
		Name: "a loader that takes too long",
		Want: map[Told]int{{leasehold.EventLoadEnded, flt, leasehold.OutcomeTimeout}: 1},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{TTL: time.Minute, LoadTimeout: time.Second})
			_, _ = g.Do(s.Context(), "k", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		},
	},
	{
		Name: "left by its only caller while it is loaded",
		Want: map[Told]int{
			{leasehold.EventLoadStarted, flt, ""}:                      1,
			{leasehold.EventLoadEnded, flt, leasehold.OutcomeCanceled}: 1,
			{leasehold.EventLeaseEnded, flt, leasehold.OutcomeLost}:    0, // it was given back
		},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{LeaseTTL: 3 * time.Second})
			ctx, leave := context.WithCancel(s.Context())
			_, err := g.Do(ctx, "k", func(ctx context.Context) (string, error) {
				leave()
				<-ctx.Done()
				return "", ctx.Err()
			})
			redistest.Check(s, err != nil, "a caller that left got a value")
			time.Sleep(2 * time.Second) // the next renewal gives the lease back
		},
	},
	{
		Name: "an entry that is no value",
		Want: map[Told]int{{leasehold.EventDecodeFailed, flt, ""}: 1},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{})
			s.must(s.a.Set(s.Context(), "leasehold:flt:{pages:k}:value", "no envelope", time.Minute).Err())
			var n atomic.Int64
			_, err := g.Do(s.Context(), "k", loads(&n, "v", nil))
			s.must(err)
		},
	},
	{
		Name: "invalidated, once while it is loaded",
		Want: map[Told]int{
			{leasehold.EventInvalidated, flt, leasehold.OutcomeOK}:        2,
			{leasehold.EventPublished, flt, leasehold.OutcomeInvalidated}: 1,
		},
		run: func(s *stage) {
			g := s.cache(s.a, singleflight.Config[string]{})
			var n atomic.Int64
			_, err := g.Do(s.Context(), "k", loads(&n, "v", nil))
			s.must(err)
			s.must(g.Invalidate(s.Context(), "k"))
			_, err = g.Do(s.Context(), "k", func(ctx context.Context) (string, error) { return "v", g.Invalidate(ctx, "k") })
			s.must(err)
		},
	},
}

// All is all situations.
var All = append(append([]Situation{}, Leases...), Loads...)
