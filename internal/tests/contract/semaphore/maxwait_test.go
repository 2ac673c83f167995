package semaphore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func maxWait(d time.Duration) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.MaxWait = d }
}

// MaxWait bounds the wait of each call that waits: its end is busy, and neither an
// outage nor a ctx that ended. It leaves nothing behind.
func TestMaxWaitEndsTheWait(t *testing.T) {
	some(t, func(f *fixture) {
		const bound = 500 * time.Millisecond
		s, _ := f.open(limit(1), maxWait(bound))
		holder := f.take(s, "k", 1)
		for name, wait := range map[string]func(ctx context.Context) error{
			"Acquire":  func(ctx context.Context) error { _, err := s.Acquire(ctx, "k"); return err },
			"AcquireN": func(ctx context.Context) error { _, err := s.AcquireN(ctx, "k", 1); return err },
			"Do": func(ctx context.Context) error {
				return s.Do(ctx, "k", func(context.Context) error { f.Errorf("Do ran"); return nil })
			},
		} {
			began := time.Now()
			err := wait(f.Context())
			took := time.Since(began)
			var busy *leasehold.BusyError
			redistest.Check(f, errors.As(err, &busy) && busy.InUse == 1 && busy.Limit == 1,
				"%s: %v; want a BusyError that says 1 of 1", name, err)
			redistest.WantErr(f, err, leasehold.ErrBusy, redistest.Not(leasehold.ErrUnavailable, context.DeadlineExceeded, context.Canceled))
			redistest.Check(f, took >= bound && took <= bound+redistest.Soon, "%s: waited %v; want %v", name, took, bound)
		}
		redistest.Eventually(f, "an empty queue", func() bool { return f.Queued("k") == 0 })
		release(f, holder)
		f.WantHeld("k", 0)
	})
}

// A permit that comes right when MaxWait is over is either held, with a Context that
// lives on, or on its way back: nobody has a dead one.
func TestGrantNearMaxWaitIsWhole(t *testing.T) {
	some(t, func(f *fixture) {
		const bound = 20 * time.Millisecond
		s, _ := f.open(limit(1), maxWait(bound))
		var granted, busy atomic.Int64
		rounds := 40
		for i := range rounds {
			var holder *semaphore.Lease
			redistest.Eventually(f, "a permit", func() bool { // the round before may still give back its own
				l, err := s.TryAcquire(f.Context(), "k")
				holder = l
				return err == nil
			})
			var all sync.WaitGroup
			all.Go(func() {
				l, err := s.Acquire(f.Context(), "k")
				if err != nil {
					if !errors.Is(err, leasehold.ErrUnavailable) { // its enter may take longer than the bound
						redistest.WantErr(f, err, leasehold.ErrBusy)
					}
					redistest.WantNot(f, err, context.DeadlineExceeded, context.Canceled)
					busy.Add(1)
					return
				}
				granted.Add(1)
				time.Sleep(2 * time.Millisecond) // a timer that is late would strike now
				cause := context.Cause(l.Context())
				redistest.Check(f, cause == nil, "a grant with a dead Context: %v", cause)
				release(f, l)
			})
			time.Sleep(bound - 4*time.Millisecond + time.Duration(i%9)*time.Millisecond)
			release(f, holder)
			all.Wait()
			redistest.Eventually(f, "a free permit", func() bool { return len(f.Held("k")) == 0 })
		}
		f.Logf("%d granted, %d busy, or not answered in time", granted.Load(), busy.Load())
	})
}

// RetryAfter is made of what was observed: at most 1 s where nothing was, else of the
// time that others held, and never beyond the first expiry.
func TestRetryAfterFitsAHeader(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open(limit(1), ttl(30*time.Second))
		retry := func() time.Duration {
			f.Helper()
			_, err := s.TryAcquire(f.Context(), "k")
			var busy *leasehold.BusyError
			redistest.CheckNow(f, errors.As(err, &busy), "%v; want a BusyError", err)
			return busy.RetryAfter
		}
		l := f.take(s, "k", 1)
		d := retry()
		redistest.Check(f, d > 0 && d <= time.Second, "RetryAfter is %v before any hold was observed; want at most 1s", d)
		release(f, l)
		for range 8 { // jobs of 20 ms
			l := f.take(s, "k", 1)
			time.Sleep(20 * time.Millisecond)
			release(f, l)
		}
		l = f.take(s, "k", 1)
		d = retry()
		redistest.Check(f, d > 0 && d <= 2*time.Second, "RetryAfter is %v for jobs of 20ms; the TTL is 30s", d)
		release(f, l)

		short, _ := f.open(limit(1), ttl(2*time.Second))
		first := f.take(short, "other", 1)
		time.Sleep(2500 * time.Millisecond)
		release(f, first) // a hold of 2.5 s was observed
		held := f.take(short, "other", 1)
		_, err := short.TryAcquire(f.Context(), "other")
		var busy *leasehold.BusyError
		redistest.Check(f, errors.As(err, &busy) && busy.RetryAfter <= 2*time.Second,
			"%v, RetryAfter %v; want no more than until the first expiry", err, busy.RetryAfter)
		release(f, held)
	})
}
