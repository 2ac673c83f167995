package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// permitSite is one key of a family of permits.
type permitSite struct{ *harness.Site }

func newPermitSite(tb testing.TB, rdb redis.UniversalClient) *permitSite {
	return &permitSite{harness.NewSite(tb, harness.Permits, rdb)}
}

func (s *permitSite) handle(rdb redis.UniversalClient, cfg semaphore.Config) *semaphore.Semaphore {
	s.TB.Helper()
	cfg.Name = s.Family
	if cfg.KeepFor == 0 && cfg.Total == 0 {
		cfg.KeepFor = harness.KeepFor(cfg.TTL)
	}
	return redistest.Must(semaphore.New(rdb, cfg))(s.TB)
}

// closing is handle, closed at the end of the test.
func (s *permitSite) closing(rdb redis.UniversalClient, cfg semaphore.Config) *semaphore.Semaphore {
	s.TB.Helper()
	h := s.handle(rdb, cfg)
	s.TB.Cleanup(func() { harness.CloseWithin(s.TB, closeBound, h) })
	return h
}

// empty waits until nothing is held and nobody waits, then takes all permits at once, and gives them back.
func (s *permitSite) empty(limit int, within time.Duration) {
	s.TB.Helper()
	harness.Until(s.TB, within, func() error {
		// A waiter that is granted moves from the queue to the holders, so the queue is read first.
		if q, n := s.Queued(), s.InUse(); n != 0 || q != 0 {
			return fmt.Errorf("%d permits in use and %d waiters are left", n, q)
		}
		return nil
	})
	h := s.handle(s.RDB, semaphore.Config{Limit: limit})
	defer harness.CloseWithin(s.TB, closeBound, h)
	l, err := h.TryAcquireN(context.Background(), s.Key, limit)
	if err != nil {
		s.TB.Errorf("take all permits after the fault: %v", err)
		return
	}
	redistest.Expect(s.TB, l.Release(), nil, "give all permits back: %v")
}

// acquiring waits for a permit in another goroutine.
func (s *permitSite) acquiring(ctx context.Context, h *semaphore.Semaphore) *harness.Call[*semaphore.Lease] {
	return harness.Start(s.TB, func() (*semaphore.Lease, error) { return h.Acquire(ctx, s.Key) })
}
