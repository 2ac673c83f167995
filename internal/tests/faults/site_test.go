// Package faults holds what each handle does under each fault, on real servers.
package faults

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }

// closeBound is how long a Close may take.
const closeBound = 30 * time.Second

// site is one key of a family as it stands on its server, with which the library's word is compared. Its client goes
// around every fault.
type site struct {
	testing.TB
	RDB               redis.UniversalClient
	kind, family, key string
}

// newSite makes a site of a family that no other test uses.
func newSite(tb testing.TB, kind string, rdb redis.UniversalClient) *site {
	harness.StrictOnly(tb, kind)
	return &site{tb, rdb, kind, redistest.Name(tb), "k"}
}

// on is another key of the family, in the eyes of another test.
func (s *site) on(tb testing.TB, key string) *site { return &site{tb, s.RDB, s.kind, s.family, key} }

// closing is a handle that is closed at the end of the test.
func closing[H harness.Handle](s *site, h H) H {
	s.Cleanup(func() { harness.CloseWithin(s, closeBound, h) })
	return h
}

func (s *site) mutex(rdb redis.UniversalClient, cfg mutex.Config) *mutex.Mutex {
	s.Helper()
	cfg.Name, cfg.KeepFor = s.family, cmp.Or(cfg.KeepFor, harness.KeepFor(cfg.TTL))
	return closing(s, redistest.Must(mutex.New(rdb, cfg))(s))
}

func (s *site) semaphore(rdb redis.UniversalClient, cfg semaphore.Config) *semaphore.Semaphore {
	s.Helper()
	cfg.Name, cfg.KeepFor = s.family, harness.KeepFor(cfg.TTL)
	return closing(s, redistest.Must(semaphore.New(rdb, cfg))(s))
}

func (s *site) group(rdb redis.UniversalClient, mod ...func(c *singleflight.Config[string])) *singleflight.Group[string] {
	s.Helper()
	cfg := singleflight.Config[string]{Name: s.family, TTL: time.Hour, Jitter: -1, LeaseTTL: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	for _, m := range mod {
		m(&cfg)
	}
	return closing(s, redistest.Must(singleflight.New(rdb, cfg))(s))
}

func loadLocally(c *singleflight.Config[string]) { c.OnUnavailable = singleflight.LoadLocally }

// part is a Redis key of the site, by the names that the contract gives.
func (s *site) part(part string) string { return harness.Part(s.kind, s.family, s.key, part) }

// queued is the number of waiters.
func (s *site) queued() int {
	s.Helper()
	return int(redistest.Must(s.RDB.ZCard(context.Background(), s.part("queue")).Result())(s))
}

// waitQueued waits until so many are in the queue.
func (s *site) waitQueued(n int) {
	s.Helper()
	harness.WaitCount(s, "waiters", n, s.queued)
}

var unexpired = redis.NewScript(`local t = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], '(' .. (t[1] * 1000 + math.floor(t[2] / 1000)), '+inf')`)

// living counts the members of a sorted set whose time is not over, by the server's clock.
func (s *site) living(part string) int {
	s.Helper()
	return redistest.Must(unexpired.Run(context.Background(), s.RDB, []string{s.part(part)}).Int())(s)
}

// inUse is the number of leases held by the server's clock.
func (s *site) inUse() int {
	s.Helper()
	return s.living("holders")
}

func (s *site) holds(permits int) {
	s.Helper()
	redistest.Expect(s, s.inUse(), permits, "%d permits are in use")
}

// over waits until nothing is held and nobody waits.
func (s *site) over(within time.Duration) {
	s.Helper()
	harness.Until(s, within, func() error {
		// A waiter that is granted moves from the queue to the holders, so the queue is read first.
		if q, n, aside := s.queued(), s.inUse(), s.living("aside"); n != 0 || q != 0 || aside != 0 {
			return fmt.Errorf("left on key %s: %d are held, %d wait, %d aside", s.key, n, q, aside)
		}
		return nil
	})
}

// empty is over, and then takes all permits at once, and gives them back.
func (s *site) empty(limit int, within time.Duration) {
	s.Helper()
	s.over(within)
	l, err := s.semaphore(s.RDB, semaphore.Config{Limit: limit}).TryAcquireN(context.Background(), s.key, limit)
	redistest.CheckNow(s, err == nil, "take all permits after the fault: %v", err)
	redistest.Expect(s, l.Release(), nil, "give all permits back: %v")
}

// free waits until the lock is free, takes it and gives it back.
func (s *site) free(within time.Duration) {
	s.Helper()
	h := s.mutex(s.RDB, mutex.Config{})
	harness.Until(s, within, func() error {
		l, err := h.TryLock(context.Background(), s.key)
		if err != nil {
			return err
		}
		return l.Unlock()
	})
	redistest.Expect(s, s.queued(), 0, "%d wait")
}

var keyParts = []string{"holders", "queue", "alive", "fence", "value", "failure", "landed", "aside"}

// clean is over, and says that no key is left without an end. Tombstones may stay for as long as they say.
func (s *site) clean(within time.Duration) {
	s.Helper()
	s.over(within)
	for _, part := range keyParts {
		ttl, err := s.RDB.PTTL(context.Background(), s.part(part)).Result()
		redistest.Check(s, err == nil && ttl != -1, "%s has no end: %v, %v", s.part(part), ttl, err)
	}
}

// locking waits for the lock in another goroutine.
func (s *site) locking(h *mutex.Mutex) *harness.Call[*mutex.Lock] {
	return harness.Start(s, func() (*mutex.Lock, error) { return h.Lock(context.Background(), s.key) })
}

// acquiring waits for a permit in another goroutine.
func (s *site) acquiring(ctx context.Context, h *semaphore.Semaphore) *harness.Call[*semaphore.Lease] {
	return harness.Start(s, func() (*semaphore.Lease, error) { return h.Acquire(ctx, s.key) })
}

// fetching is a Fetch in another goroutine.
type fetching = harness.Call[singleflight.Result[string]]

// fetch calls Fetch in another goroutine.
func (s *site) fetch(g *singleflight.Group[string], load loaderFunc) *fetching {
	return harness.Start(s, func() (singleflight.Result[string], error) { return g.Fetch(s.Context(), s.key, load) })
}

func wantValue(t *testing.T, who, want string, done *fetching) {
	t.Helper()
	r := done.Within(20*time.Second, who)
	redistest.Check(t, r.Err == nil && r.Value.Value == want, "%s got %.10q (%v), %v; want %.10q", who, r.Value.Value, r.Value.Source, r.Err, want)
}

type loaderFunc = func(ctx context.Context) (string, error)

// loaderOf is a loader that returns v at once.
func loaderOf(v string) loaderFunc { return func(context.Context) (string, error) { return v, nil } }

// warmUp teaches a group the server's clock, and the server the scripts.
func warmUp(tb testing.TB, g *singleflight.Group[string]) {
	tb.Helper()
	ctx := context.Background()
	redistest.Must(g.Do(ctx, "warm", loaderOf("warm")))(tb)
	redistest.WantErr(tb, g.Invalidate(ctx, "warm"))
}
