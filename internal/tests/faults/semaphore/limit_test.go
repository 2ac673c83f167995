package semaphore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// lastingTTL is that of leases that have to stay held, on a busy machine too.
const lastingTTL = 3 * time.Second

// The limit is lowered below what is held: nobody is evicted, and nobody gets
// anything until it fits.
func TestLoweredLimitEvictsNobody(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		rdb := target.Client(t)
		s := newSite(t, rdb)
		h := s.closing(rdb, semaphore.Config{Limit: 3, TTL: lastingTTL})
		held := take(t, h, s.Key, 3)
		if err := rdb.Set(t.Context(), s.Part("limit"), 1, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		waiter := harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(context.Background(), s.Key) })
		harness.WaitCount(t, "waiters", 1, s.Queued)
		s.grantedOnlyAfter(held, waiter)
		rdb.Del(t.Context(), s.Part("limit"))
		s.empty(3, time.Second)
	})
}

// Processes differ in their limits: each request is judged by its own process's.
func TestProcessesWithDifferentLimits(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		rdb := target.Client(t)
		s := newSite(t, rdb)
		wide := s.closing(rdb, semaphore.Config{Limit: 3, TTL: lastingTTL})
		narrow := s.closing(target.Client(t), semaphore.Config{Limit: 1, TTL: lastingTTL})
		held := take(t, wide, s.Key, 3)
		waiter := harness.Go(func() (*semaphore.Lease, error) { return narrow.Acquire(context.Background(), s.Key) })
		harness.WaitCount(t, "waiters", 1, s.Queued)
		s.grantedOnlyAfter(held, waiter)

		// And the other way round: the one that allows more gets more at once.
		one, err := narrow.TryAcquire(t.Context(), s.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range append(take(t, wide, s.Key, 2), one) {
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
	s.TB.Helper()
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
			renewed(s.TB, other, last)
		}
		select {
		case r := <-waiter:
			s.TB.Fatalf("granted beside %d others: %v", left, r.Err)
		default:
		}
		if err := l.Release(); err != nil {
			s.TB.Errorf("release: %v", err)
		}
	}
	r := harness.Got(s.TB, 5*time.Second, "an acquisition", waiter)
	if r.Err != nil {
		s.TB.Fatalf("wait: %v", r.Err)
	}
	s.holds(1)
	if err := r.Value.Release(); err != nil {
		s.TB.Errorf("release: %v", err)
	}
}

// A request that waits asks for more than the limit that was set meanwhile: it
// is told which, and those behind it get on.
func TestRequestThatCannotBeServedAnyMore(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		s := newSite(t, rdb)
		cfg := semaphore.Config{Limit: 5}
		first, err := s.closing(rdb, cfg).TryAcquireN(t.Context(), s.Key, 2)
		if err != nil {
			t.Fatal(err)
		}
		big, small := s.closing(target.Client(t), cfg), s.closing(target.Client(t), cfg)
		head := harness.Go(func() (*semaphore.Lease, error) { return big.AcquireN(context.Background(), s.Key, 5) })
		harness.WaitCount(t, "waiters", 1, s.Queued)
		behind := harness.Go(func() (*semaphore.Lease, error) { return small.Acquire(context.Background(), s.Key) })
		harness.WaitCount(t, "waiters", 2, s.Queued)
		s.holds(2)
		if err := rdb.Set(t.Context(), s.Part("limit"), 3, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		r := harness.Got(t, 10*time.Second, "an acquisition", head)
		if r.Err == nil || !strings.Contains(r.Err.Error(), "limit is 3") {
			t.Fatalf("5 permits of 3: %v; want an error that names the limit", r.Err)
		}
		next := harness.Got(t, 10*time.Second, "an acquisition", behind)
		if next.Err != nil {
			t.Fatalf("the one behind: %v", next.Err)
		}
		if took := next.At.Sub(at); took > overtime {
			t.Errorf("the one behind waited for another %v", took)
		}
		s.holds(3)
		_, err = big.TryAcquireN(t.Context(), s.Key, 4)
		if err == nil || !strings.Contains(err.Error(), "limit is 3") {
			t.Errorf("4 permits of 3: %v; want an error that names the limit", err)
		}
		for _, l := range []*semaphore.Lease{first, next.Value} {
			if err := l.Release(); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		rdb.Del(t.Context(), s.Part("limit"))
		s.empty(5, time.Second)
	})
}
