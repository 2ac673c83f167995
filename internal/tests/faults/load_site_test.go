package faults

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// groupSite is one key of a family of cached values.
type groupSite struct{ *harness.Site }

func newFaultSite(tb testing.TB, rdb redis.UniversalClient) *groupSite {
	return &groupSite{harness.NewSite(tb, harness.Loads, rdb)}
}

// on is another key of the family, in the eyes of another test.
func (s *groupSite) on(tb testing.TB, key string) *groupSite { return &groupSite{s.On(tb, key)} }

// group makes a group of the family, closed at the end of the test.
func (s *groupSite) group(rdb redis.UniversalClient, mod ...func(c *singleflight.Config[string])) *singleflight.Group[string] {
	s.TB.Helper()
	cfg := singleflight.Config[string]{Name: s.Family, TTL: time.Minute, Jitter: -1, LeaseTTL: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	for _, m := range mod {
		m(&cfg)
	}
	g := redistest.Must(singleflight.New(rdb, cfg))(s.TB)
	s.TB.Cleanup(func() { harness.CloseWithin(s.TB, closeBound, g) })
	return g
}

var keyParts = []string{"holders", "queue", "alive", "fence", "value", "failure", "landed", "aside"}

// clean waits until nothing runs and nobody waits, and says that no key is left
// without an end. Tombstones may stay for as long as they say.
func (s *groupSite) clean(within time.Duration) {
	s.TB.Helper()
	harness.Until(s.TB, within, func() error {
		if h, q, a := s.Living("holders"), s.Queued(), s.Living("aside"); h != 0 || q != 0 || a != 0 {
			return fmt.Errorf("left on key %s: %d holders, %d in the queue, %d aside", s.Key, h, q, a)
		}
		return nil
	})
	for _, part := range keyParts {
		ttl, err := s.RDB.PTTL(context.Background(), s.Part(part)).Result()
		if err != nil || ttl == -1 {
			s.TB.Errorf("%s has no end: %v, %v", s.Part(part), ttl, err)
		}
	}
}

// warmUp teaches a group the server's clock, and the server the scripts.
func warmUp(tb testing.TB, g *singleflight.Group[string]) {
	tb.Helper()
	ctx := context.Background()
	redistest.Must(g.Do(ctx, "warm", loaderOf("warm")))(tb)
	redistest.WantErr(tb, g.Invalidate(ctx, "warm"))
}

type loaderFunc = func(ctx context.Context) (string, error)

// loaderOf is a loader that returns v at once.
func loaderOf(v string) loaderFunc { return func(context.Context) (string, error) { return v, nil } }

// fetching is a Fetch in another goroutine.
type fetching = harness.Call[singleflight.Result[string]]

// fetch calls Fetch in another goroutine.
func (s *groupSite) fetch(g *singleflight.Group[string], load loaderFunc) *fetching {
	return harness.Start(s.TB, func() (singleflight.Result[string], error) { return g.Fetch(s.TB.Context(), s.Key, load) })
}

func wantValue(t *testing.T, who, want string, done *fetching) {
	t.Helper()
	r := done.Within(20*time.Second, who)
	redistest.Check(t, r.Err == nil && r.Value.Value == want, "%s got %.10q (%v), %v; want %.10q", who, r.Value.Value, r.Value.Source, r.Err, want)
}

func loadLocally(c *singleflight.Config[string]) { c.OnUnavailable = singleflight.LoadLocally }
