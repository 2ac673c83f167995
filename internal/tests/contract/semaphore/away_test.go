package semaphore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// away is how long a call that does not wait takes at most while Redis is known to be away.
const away = 100 * time.Millisecond

// goAway makes Redis one that s knows not to answer.
func (f *fixture) goAway(s *semaphore.Semaphore, w *harness.Wire) {
	f.Helper()
	w.GoAway(func() {
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "k")), leasehold.ErrUnavailable, harness.ErrRefused)
	})
}

// Calls that never wait fail quickly while Redis is known to be away, and succeed at once when
// it is back.
func TestRedisIsAway(t *testing.T) {
	for mode, local := range map[string]time.Duration{"": 0, "in turns": time.Second} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
				s, wire := f.open(localFor(local))
				release(f, f.take(s, "k", 1))
				f.goAway(s, wire)
				for i := range 5 {
					for name, call := range map[string]func() error{
						"TryAcquire": func() error { _, err := s.TryAcquire(f.Context(), "k"); return err },
						"Inspect":    func() error { _, err := s.Inspect(f.Context(), "k"); return err },
					} {
						began := time.Now()
						redistest.WantErr(f, call(), leasehold.ErrUnavailable, harness.ErrRefused)
						redistest.AtMost(f, time.Since(began), away, "%s no. %d took %v", name, i)
					}
				}
				ctx, cancel := context.WithTimeout(f.Context(), time.Millisecond)
				defer cancel()
				time.Sleep(time.Second)
				redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(ctx, "k")), context.DeadlineExceeded)
				wire.Heal()
				time.Sleep(time.Second)
				release(f, f.take(s, "k", 1))
			})
		})
	}
}

// A try that finds Redis away on the way tries no longer.
func TestTryEndsWhenRedisGoesAway(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		s, wire := f.open()
		release(f, f.take(s, "k", 1))
		wire.Refuse()
		before := wire.Sent("enter")
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "k")), leasehold.ErrUnavailable, harness.ErrRefused)
		redistest.Expect(f, wire.Sent("enter")-before, 0, "%d enters were let through")
	})
}

// Release does not hold up finished work while Redis is away. The permit is given back when
// Redis is back.
func TestReleaseWhileRedisIsAway(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		s, wire := f.open(limit(20))
		var leases []*semaphore.Lease
		for range 10 {
			leases = append(leases, f.take(s, "k", 1))
		}
		f.goAway(s, wire)
		for i, l := range leases {
			began := time.Now()
			redistest.WantErr(f, l.Release(), leasehold.ErrUnavailable, harness.ErrRefused)
			redistest.AtMost(f, time.Since(began), away, "release %d took %v", i)
		}
		f.WantHeld("k", 10)
		wire.Heal()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f.WantHeld("k", 0)
	})
}

// A waiter keeps its turn through a short outage: it never asks whether Redis is away. Nor does
// a renewal.
func TestWaitsOutlastAnOutage(t *testing.T) {
	for mode, local := range map[string]time.Duration{"": 0, "in turns": time.Second} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
				s, wire := f.open(localFor(local), ttl(12*time.Second))
				other, _ := f.open()
				held, kept := f.take(other, "k", 1), f.take(s, "kept", 1)
				queued := f.wait(f.Context(), s, "k", 1)
				wire.Refuse()
				redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "l")), leasehold.ErrUnavailable)
				begins := harness.Start(f.T, func() (*semaphore.Lease, error) { return s.Acquire(f.Context(), "l") })
				time.Sleep(2 * time.Second)
				wire.Heal()
				release(f, begins.Got())
				time.Sleep(5 * time.Second)
				wire.Refuse()
				time.Sleep(4 * time.Second)
				wire.Heal()
				release(f, held)
				release(f, queued.Got())
				time.Sleep(10 * time.Second)
				release(f, kept)
			})
		})
	}
}
