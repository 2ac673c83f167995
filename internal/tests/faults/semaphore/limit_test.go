package semaphore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The limit is lowered below what is held: nobody is evicted, and nobody gets
// anything until it fits.
func TestLoweredLimitEvictsNobody(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		s := newSite(t, rdb)
		h := s.closing(rdb, semaphore.Config{Limit: 3, TTL: 600 * time.Millisecond})
		held := take(t, h, s.key, 3)
		if err := rdb.Set(t.Context(), s.part("limit"), 1, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		waiter := acquiring(func() (*semaphore.Lease, error) { return h.Acquire(context.Background(), s.key) })
		count(t, "waiters", 1, s.queued)
		s.grantedOnlyAfter(held, waiter)
		rdb.Del(t.Context(), s.part("limit"))
		s.empty(3, time.Second)
	})
}

// Processes differ in their limits: each request is judged by its own process's.
func TestProcessesWithDifferentLimits(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		s := newSite(t, rdb)
		wide := s.closing(rdb, semaphore.Config{Limit: 3, TTL: 600 * time.Millisecond})
		narrow := s.closing(target.Client(t), semaphore.Config{Limit: 1, TTL: 600 * time.Millisecond})
		held := take(t, wide, s.key, 3)
		waiter := acquiring(func() (*semaphore.Lease, error) { return narrow.Acquire(context.Background(), s.key) })
		count(t, "waiters", 1, s.queued)
		s.grantedOnlyAfter(held, waiter)

		// And the other way round: the one that allows more gets more at once.
		one, err := narrow.TryAcquire(t.Context(), s.key)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range append(take(t, wide, s.key, 2), one) {
			if err := l.Release(); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		s.empty(3, time.Second)
	})
}

func take(t *testing.T, h *semaphore.Semaphore, key string, n int) (held []*semaphore.Lease) {
	t.Helper()
	for range n {
		l, err := h.TryAcquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	return held
}

// grantedOnlyAfter releases what is held, one by one: a waiter whose limit is 1
// is granted with the last, and what is held is renewed until then.
func (s *site) grantedOnlyAfter(held []*semaphore.Lease, waiter <-chan result) {
	s.tb.Helper()
	for i, l := range held {
		left := len(held) - i
		s.holds(left)
		last := held[i].Deadline()
		for _, other := range held[i:] {
			if d := other.Deadline(); d.After(last) {
				last = d
			}
		}
		for _, other := range held[i:] {
			renewed(s.tb, other, last)
		}
		select {
		case r := <-waiter:
			s.tb.Fatalf("granted beside %d others: %v", left, r.err)
		default:
		}
		if err := l.Release(); err != nil {
			s.tb.Errorf("release: %v", err)
		}
	}
	r := within(s.tb, 5*time.Second, waiter)
	if r.err != nil {
		s.tb.Fatalf("wait: %v", r.err)
	}
	s.holds(1)
	if err := r.lease.Release(); err != nil {
		s.tb.Errorf("release: %v", err)
	}
}

// A request that waits asks for more than the limit that was set meanwhile: it
// is told which, and those behind it get on.
func TestRequestThatCannotBeServedAnyMore(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		s := newSite(t, rdb)
		cfg := semaphore.Config{Limit: 5}
		first, err := s.closing(rdb, cfg).TryAcquireN(t.Context(), s.key, 2)
		if err != nil {
			t.Fatal(err)
		}
		big, small := s.closing(target.Client(t), cfg), s.closing(target.Client(t), cfg)
		head := acquiring(func() (*semaphore.Lease, error) { return big.AcquireN(context.Background(), s.key, 5) })
		count(t, "waiters", 1, s.queued)
		behind := acquiring(func() (*semaphore.Lease, error) { return small.Acquire(context.Background(), s.key) })
		count(t, "waiters", 2, s.queued)
		s.holds(2)
		if err := rdb.Set(t.Context(), s.part("limit"), 3, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		r := within(t, 10*time.Second, head)
		if r.err == nil || !strings.Contains(r.err.Error(), "limit is 3") {
			t.Fatalf("5 permits of 3: %v; want an error that names the limit", r.err)
		}
		next := within(t, 10*time.Second, behind)
		if next.err != nil {
			t.Fatalf("the one behind: %v", next.err)
		}
		if took := next.at.Sub(at); took > overtime {
			t.Errorf("the one behind waited for another %v", took)
		}
		s.holds(3)
		_, err = big.TryAcquireN(t.Context(), s.key, 4)
		if err == nil || !strings.Contains(err.Error(), "limit is 3") {
			t.Errorf("4 permits of 3: %v; want an error that names the limit", err)
		}
		for _, l := range []*semaphore.Lease{first, next.lease} {
			if err := l.Release(); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		rdb.Del(t.Context(), s.part("limit"))
		s.empty(5, time.Second)
	})
}
