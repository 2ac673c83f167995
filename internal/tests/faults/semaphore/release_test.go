package semaphore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// A lease is released by several goroutines at once while it is renewed: one of
// them gives it back, and it does not come back: 6,000 leases, 24,000 releases,
// or as many leases as LEASEHOLD_ROUNDS says. The newest server alone, for their
// number.
func TestReleasesRaceARenewal(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newSite(t, srv.Client())
	h := s.closing(srv.Client(), semaphore.Config{Limit: 1})
	next := s.closing(s.RDB, semaphore.Config{Limit: 1})
	times := 6_000
	if testing.Short() {
		times = 1_500
	}
	if text, ok := os.LookupEnv("LEASEHOLD_ROUNDS"); ok {
		var err error
		if times, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LEASEHOLD_ROUNDS: %v", err)
		}
	}
	const workers, racers = 8, 3
	var done atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		key := fmt.Sprint(w)
		all.Go(func() {
			for int(done.Add(1)) <= times && !t.Failed() {
				l, err := h.TryAcquire(t.Context(), key)
				if err != nil {
					t.Errorf("acquire: %v", err) // it came back
					return
				}
				race(t, l, racers)
				after, err := next.TryAcquire(t.Context(), key)
				if err != nil {
					t.Errorf("acquire after the release: %v", err)
					return
				}
				if err := l.Release(); !errors.Is(err, leasehold.ErrReleased) {
					t.Errorf("release while another holds: %v", err)
				}
				if err := after.Release(); err != nil {
					t.Errorf("the successor's release: %v", err)
				}
			}
		})
	}
	all.Wait()
	for w := range workers {
		s.Key = fmt.Sprint(w)
		s.empty(1, 0)
	}
}

// race has l renewed once and released by so many goroutines.
func race(t *testing.T, l *semaphore.Lease, racers int) {
	errs := make([]error, racers)
	var ready, all sync.WaitGroup
	ready.Add(racers + 1)
	all.Go(func() {
		ready.Done()
		ready.Wait()
		err := l.Extend(context.Background(), time.Minute)
		if err != nil && !errors.Is(err, leasehold.ErrReleased) {
			t.Errorf("extend: %v", err)
		}
	})
	for i := range errs {
		all.Go(func() {
			ready.Done()
			ready.Wait()
			errs[i] = l.Release()
		})
	}
	all.Wait()
	gave := 0
	for _, err := range errs {
		if err == nil {
			gave++
		} else if !errors.Is(err, leasehold.ErrReleased) {
			t.Errorf("release: %v", err)
		}
	}
	if gave != 1 {
		t.Errorf("%d of %d releases gave the lease back", gave, racers)
	}
}

// A lease that has ended is released and extended when another holds in its
// place: the successor is not touched.
func TestReleaseAfterTheEndTouchesNobody(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		s := newSite(t, rdb)
		h := s.closing(target.Client(t), semaphore.Config{Limit: 2, TTL: 700 * time.Millisecond})
		l, err := h.AcquireN(t.Context(), s.Key, 2)
		if err != nil {
			t.Fatal(err)
		}
		// As an operator does, or an eviction.
		if err := rdb.Del(t.Context(), s.Part("holders")).Err(); err != nil {
			t.Fatal(err)
		}
		after, err := s.closing(rdb, semaphore.Config{Limit: 2}).TryAcquireN(t.Context(), s.Key, 2)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var gave, ended atomic.Int64
		for range 8 {
			all.Go(func() {
				switch err := l.Release(); {
				case err == nil:
					gave.Add(1)
				case errors.Is(err, leasehold.ErrLost):
					ended.Add(1)
				case !errors.Is(err, leasehold.ErrReleased):
					t.Errorf("release: %v", err)
				}
			})
		}
		all.Wait()
		if gave.Load() != 0 || ended.Load() != 1 {
			t.Errorf("%d releases gave back, %d said ErrLost; want 0 and 1", gave.Load(), ended.Load())
		}
		harness.IsErr(t, "extend", l.Extend(t.Context(), time.Minute), leasehold.ErrReleased)
		s.holds(2)
		if err := context.Cause(after.Context()); err != nil {
			t.Errorf("the successor: %v", err)
		}
		if err := after.Release(); err != nil {
			t.Errorf("the successor's release: %v", err)
		}
		s.empty(2, 0)
	})
}
