package faults

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// lockSite is one key of a family of locks.
type lockSite struct{ *harness.Site }

func newLockSite(tb testing.TB, rdb redis.UniversalClient) *lockSite {
	return &lockSite{harness.NewSite(tb, harness.Locks, rdb)}
}

// handle makes a handle that is closed at the end of the test.
func (s *lockSite) handle(rdb redis.UniversalClient, cfg mutex.Config) *mutex.Mutex {
	s.TB.Helper()
	cfg.Name = s.Family
	if cfg.KeepFor == 0 {
		cfg.KeepFor = harness.KeepFor(cfg.TTL)
	}
	h := redistest.Must(mutex.New(rdb, cfg))(s.TB)
	s.TB.Cleanup(func() { harness.CloseWithin(s.TB, closeBound, h) })
	return h
}

// free waits until the lock is free, takes it and gives it back.
func (s *lockSite) free(within time.Duration) {
	s.TB.Helper()
	h := s.handle(s.RDB, mutex.Config{})
	harness.Until(s.TB, within, func() error {
		l, err := h.TryLock(context.Background(), s.Key)
		if err != nil {
			return err
		}
		return l.Unlock()
	})
	redistest.Expect(s.TB, s.Queued(), 0, "%d wait")
}

// locking waits for the lock in another goroutine.
func (s *lockSite) locking(h *mutex.Mutex) *harness.Call[*mutex.Lock] {
	return harness.Start(s.TB, func() (*mutex.Lock, error) { return h.Lock(context.Background(), s.Key) })
}
