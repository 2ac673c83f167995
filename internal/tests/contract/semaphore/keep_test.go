package semaphore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func keepFor(d time.Duration) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.KeepFor = d }
}

// keeper opens a handle that keeps permits for a second.
func (f *fixture) keeper(mod ...func(*semaphore.Config)) (*semaphore.Semaphore, *harness.Wire) {
	f.Helper()
	return f.open(append([]func(*semaphore.Config){keepFor(time.Second), ttl(5 * time.Second)}, mod...)...)
}

// keep makes a handle keep n leases of one permit, and returns their IDs.
func (f *fixture) keep(s *semaphore.Semaphore, key string, n int) (ids []string) {
	f.Helper()
	var leases []*semaphore.Lease
	for range n {
		l := f.take(s, key, 1)
		leases, ids = append(leases, l), append(ids, l.ID())
	}
	for _, l := range leases {
		release(f, l)
	}
	return ids
}

// A permit that was used a moment ago is taken again, and given back, without a call. One that was extended is given back.
func TestKeptPermitsCostNoCall(t *testing.T) {
	each(t, func(f *fixture) {
		s, w := f.keeper(limit(3))
		kept := f.keep(s, "k", 2)
		enters := w.Sent("enter")
		for n := range 20 {
			l := redistest.Must(s.Acquire(f.Context(), "k"))(f)
			redistest.CheckNow(f, l.ID() == kept[1], "turn %d has lease %s; want that which was used last, %s", n, l.ID(), kept[1])
			release(f, l)
			redistest.WantErr(f, l.Release(), leasehold.ErrReleased)
			redistest.WantErr(f, s.Do(f.Context(), "k", func(ctx context.Context) error { return ctx.Err() }))
			release(f, f.take(s, "k", 1))
		}
		n, leaves := w.Sent("enter")-enters, w.Sent("leave")
		redistest.Check(f, n == 0 && leaves == 0, "%d enters and %d leaves were sent; want none", n, leaves)
		f.WantHeld("k", 2)
		l := f.take(s, "k", 1)
		redistest.WantErr(f, l.Extend(f.Context(), time.Hour))
		release(f, l)
		redistest.AtMost(f, len(f.Held("k")), 1, "%d leases are held") // the other one, if its KeepFor is not over
	})
}

// A lease is given back KeepFor after its last use. A second later nothing of the handle is left.
func TestKeptPermitsGoBackAfterKeepFor(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.keeper(limit(2))
		f.keep(s, "k", 2)
		for range 3 { // one of them is used, the other one is not
			time.Sleep(400 * time.Millisecond)
			f.keep(s, "k", 1)
		}
		f.WantHeld("k", 1)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		f.WantHeld("k", 1)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		f.WantHeld("k", 0)
		time.Sleep(time.Second)
		all := f.Subscribed("leasehold")
		redistest.Check(f, len(all) == 0, "still subscribed to %v", all)
		time.Sleep(2 * time.Second) // the register of those that keep
		redistest.Expect(f, len(f.Server.Keys()), 0, "%d keys are left")
	})
}

// A permit that is kept in vain costs an enter and a leave, as without KeepFor.
func TestKeptPermitThatNobodyUsesCostsNoFurtherCall(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, w := f.keeper()
		used := f.take(s, "used", 1) // so that the process listens already
		time.Sleep(time.Second)
		release(f, f.take(s, "warm", 1))
		time.Sleep(200 * time.Millisecond)
		before := w.Sent("renew kept")
		l := f.take(s, "k", 1)
		time.Sleep(20 * time.Millisecond)
		release(f, l)
		time.Sleep(2 * time.Second)
		redistest.Expect(f, w.Sent("renew kept")-before, 0, "%d renewals asked whether the permit was recalled; want none")
		f.WantHeld("k", 0)
		release(f, used)
	})
}

// MaxHold, Deadline and Context belong to each turn. A lease that MaxHold has ended once is handed out again.
func TestTurnsOfAKeptPermitAreTheirOwn(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.keeper(func(c *semaphore.Config) { c.MaxHold = 300 * time.Millisecond; c.KeepFor = 150 * time.Millisecond })
		type name struct{}
		for n := range 5 {
			ctx, cancel := context.WithCancel(context.WithValue(f.Context(), name{}, n))
			l := redistest.Must(s.Acquire(ctx, "k"))(f)
			redistest.CheckNow(f, l.Context().Value(name{}) == any(n), "turn %d has the Context of turn %v", n, l.Context().Value(name{}))
			redistest.Between(f, time.Until(l.Deadline()), 150*time.Millisecond, 300*time.Millisecond, "turn %d has %v", n) // MaxHold, or what is left
			time.Sleep(250 * time.Millisecond)
			err := l.Context().Err()
			redistest.CheckNow(f, err == nil, "turn %d ended within MaxHold: %v", n, context.Cause(l.Context()))
			release(f, l)
			redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrReleased)
			cancel()
		}
		l := f.take(s, "k", 1)
		time.Sleep(301 * time.Millisecond)
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrMaxHold)
		redistest.WantErr(f, l.Release(), leasehold.ErrMaxHold)
		release(f, f.take(s, "k", 1))
	})
}

// A handle keeps at most 1000 leases. Beyond that, those that were used least recently go.
func TestKeptPermitsAreBounded(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.keeper(keepFor(2 * time.Second))
		for n := range 1011 {
			f.keep(s, fmt.Sprint(n), 1)
			if n == 999 {
				f.keep(s, "0", 1)
			}
		}
		synctest.Wait()
		for n := range 1011 {
			want := 1
			if n > 0 && n <= 11 {
				want = 0
			}
			f.WantHeld(fmt.Sprint(n), want)
		}
	})
}

// A lease in use is not kept once Shutdown has begun, so that Shutdown ends.
func TestShutdownWaitsForUsersOfKeptPermits(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.keeper(limit(2))
		f.keep(s, "k", 2)
		l := f.take(s, "k", 1)
		ended := harness.Begin(f, func() error { return s.Shutdown(f.Context()) })
		synctest.Wait()
		f.WantHeld("k", 1)
		redistest.CheckNow(f, !ended.Ended(), "Shutdown did not wait for a holder")
		began := time.Now()
		release(f, l)
		ended.Got()
		redistest.AtMost(f, time.Since(began), 100*time.Millisecond, "Shutdown took %v longer than its last holder")
		f.WantHeld("k", 0)
	})
}

// An acquisition from memory in the moment of Close returns ErrClosed, or a lease that Close ends after that.
func TestCloseDuringAcquisitionsFromMemory(t *testing.T) {
	some(t, func(f *fixture) {
		for n := range 30 {
			key := fmt.Sprint("k", n)
			s, _ := f.keeper(limit(4))
			f.keep(s, key, 4)
			var users sync.WaitGroup
			started := make(chan struct{}, 4)
			for range 4 {
				users.Go(func() {
					l, err := s.Acquire(context.Background(), key)
					started <- struct{}{}
					for ; err == nil; l, err = s.Acquire(context.Background(), key) {
						if err := l.Release(); err != nil {
							redistest.Check(f, errors.Is(err, leasehold.ErrReleased), "Release: %v", err)
						}
					}
					redistest.Check(f, errors.Is(err, leasehold.ErrClosed), "Acquire: %v; want ErrClosed", err)
				})
			}
			<-started
			harness.Close(f.T, s)
			users.Wait()
			f.WantHeld(key, 0)
		}
	})
}

// Listings say which process keeps leases, and the Observer which grants came from memory.
func TestKeptPermitsAreShown(t *testing.T) {
	each(t, func(f *fixture) {
		var events harness.Told
		a, _ := f.keeper(limit(4), observer(&events), label("a"))
		b, _ := f.open(limit(4), label("b^")) // which ends as the mark of a keeper
		f.keep(a, "k", 1)
		f.keep(a, "k", 1)
		l := f.take(b, "k", 1)
		seen := f.inspect(b, "k").Holders
		redistest.Expect(f, len(seen), 2, "%d holders")
		for _, h := range seen {
			redistest.Check(f, h.Keeps == (h.Label == "a"), "holder %+v", h)
		}
		release(f, l)
		var told []string
		for _, e := range events.Events(leasehold.EventAcquired, leasehold.EventHoldEnded) {
			told = append(told, fmt.Sprint(e.Outcome, " ", e.Kept))
		}
		redistest.Expect(f, fmt.Sprint(told), "[granted false released false granted true released false]", "told %v")
	})
}
