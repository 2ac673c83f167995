package semaphore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func localFor(d time.Duration) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.LocalFor = d }
}

// A limit that is raised at run time is used by a process that has a lease already, and one that is lowered takes
// leases away from it, though nobody else waits: also where holds are longer than LocalFor.
func TestALimitSetAtRunTimeCountsInAProcess(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.open(limit(2), localFor(50*time.Millisecond))
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		holds := map[string]time.Duration{"short": 3 * time.Millisecond, "long": 80 * time.Millisecond}
		for key, hold := range holds {
			for range 8 {
				all.Go(func() {
					for ctx.Err() == nil {
						_ = s.Do(ctx, key, func(context.Context) error { time.Sleep(hold); return nil })
					}
				})
			}
		}
		for _, n := range []int{2, 6, 1, 4} {
			for key := range holds {
				redistest.WantErr(f, s.SetLimit(f.Context(), key, n))
			}
			time.Sleep(200 * time.Millisecond) // LocalFor, a hold, and a few calls
			for key := range holds {
				held := len(f.Held(key))
				redistest.Check(f, held == n, "%s holds: %d are held, the limit is %d", key, held, n)
			}
		}
	})
}

// A limit that is raised is used within a sign of life by the waiters of a process that holds its only lease for long.
func TestARaisedLimitCountsDuringALongHold(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.open(localFor(50 * time.Millisecond))
		operator, _ := f.open()
		held := []*semaphore.Lease{f.take(s, "k", 1)}
		callers := make([]*waiting, 3)
		for i := range callers {
			callers[i] = f.start(s, "k", 1)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		redistest.WantErr(f, operator.SetLimit(f.Context(), "k", 3))
		began := time.Now()
		held = append(held, callers[0].Got(), callers[1].Got())
		redistest.AtMost(f, time.Since(began), 1600*time.Millisecond, "they waited %v")
		for _, l := range held {
			release(f, l)
		}
		release(f, callers[2].Got())
	})
}

// MaxWaiters counts the callers that wait, not those that Redis is about to grant to.
func TestMaxWaitersIsNotForPermitsThatAreFree(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.open(limit(4), localFor(50*time.Millisecond), func(c *semaphore.Config) { c.MaxWaiters = 1 })
		callers := []*waiting{f.start(s, "k", 1), f.start(s, "k", 1), f.start(s, "k", 1), f.start(s, "k", 1)}
		synctest.Wait()
		callers = append(callers, f.start(s, "k", 1))
		time.Sleep(5 * time.Millisecond)
		redistest.WantErr(f, redistest.ErrorOf(s.Acquire(f.Context(), "k")), leasehold.ErrQueueFull)
		for _, w := range callers {
			release(f, w.Got())
		}
	})
}

// The turn of a caller whose own reply is late comes by another lease of its process. That lease is lost before the
// reply comes: the caller gets another turn, not the one that is over, and nothing is left of either.
func TestATurnThatIsOverIsNotHandedOut(t *testing.T) {
	bubble(t, func(f *fixture) {
		var seen harness.Told
		s, w := f.open(limit(2), localFor(time.Second), observer(&seen))
		operator, _ := f.open(limit(2))
		release(f, f.take(s, "warm", 1)) // the server knows the script
		deliver := w.StallReplies("enter")
		first := f.start(s, "k", 1)
		synctest.Wait()
		w.StallReplies("enter")() // those of later enters come
		second := f.start(s, "k", 1)
		time.Sleep(200 * time.Millisecond) // its process has subscribed by then
		state := f.inspect(operator, "k")
		redistest.CheckNow(f, len(state.Holders) == 2, "%+v", state)
		redistest.WantErr(f, operator.Revoke(f.Context(), "k", state.Holders[1].ID, "a test"))
		time.Sleep(time.Second) // the process has been told
		deliver()
		for _, l := range []*semaphore.Lease{first.Got(), second.Got()} {
			redistest.Expect(f, context.Cause(l.Context()), nil, "a lease that has ended was handed out: %v")
			release(f, l)
		}
		time.Sleep(2 * time.Second)
		state = f.inspect(operator, "k")
		redistest.Check(f, state.InUse+state.Waiting == 0, "%+v; want that nobody holds or waits", state)
		began, ended := seen.Count(leasehold.EventAcquired, leasehold.OutcomeGranted), seen.Count(leasehold.EventHoldEnded, "")
		redistest.Check(f, began == ended, "by the events %d turns began, and %d ended", began, ended)
	})
}

// A process whose place in the queue was lost takes it anew. Its callers that find the line busy meanwhile are told how
// busy the key is: both happen at the same time, under the race detector.
func TestBusyWhileAPlaceIsTakenAnew(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		holder, _ := f.open()
		held := f.take(holder, "k", 1)
		s := f.openVia(p, localFor(20*time.Millisecond))
		waiter := f.wait(f.Context(), s, "k", 1)
		busyUntil := func(came <-chan struct{}) {
			for len(came) == 0 {
				harness.Busy(f, redistest.ErrorOf(s.TryAcquire(f.Context(), "k")))
				time.Sleep(100 * time.Microsecond)
			}
		}
		enters := harness.Answers(p, "enter")
		f.RDB.Del(f.Context(), f.Part("k", "queue"), f.Part("k", "alive")) // the next sign of life finds no place
		busyUntil(enters)
		busyUntil(harness.Answers(p, "ask")) // of the new place
		release(f, held)
		release(f, waiter.Got())
	})
}

// Redis refuses the place of a waiter while another turn of its process runs. The waiter is not told: the place is asked
// for again every 200 ms, and the lease that the process has may serve it meanwhile.
func TestRefusedPlaceIsAskedForAgain(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, wire := f.open(limit(2), localFor(time.Second))
		first := f.take(s, "k", 1)
		f.Server.SetError("OOM command not allowed when used memory > 'maxmemory'.")
		tries := wire.Sent("enter")
		second := f.start(s, "k", 1)
		synctest.Wait()
		third := f.start(s, "k", 1)
		time.Sleep(990 * time.Millisecond)
		redistest.Expect(f, wire.Sent("enter")-tries, 5, "the place was asked for %d times")
		release(f, first)
		second.Got()
		began := time.Now()
		f.Server.SetError("")
		third.Got()
		redistest.AtMost(f, time.Since(began), 200*time.Millisecond, "the place was asked for again after %v")
	})
}

// Redis refuses the place of a waiter, because the queue is full, while the process has other places. That is an answer:
// the wait ends as "busy" while Redis answers, also if the process is about to queue again, and else as "unavailable".
func TestAFullQueueIsNoOutage(t *testing.T) {
	bubble(t, func(f *fixture) {
		other, _ := f.open(limit(2))
		s, w := f.open(limit(2), localFor(time.Second), func(c *semaphore.Config) { c.MaxWaiters, c.MaxWait = 2, 3*time.Second })
		f.take(other, "k", 1)
		held := f.take(s, "k", 1)
		f.start(other, "k", 1)
		f.start(other, "k", 1)
		synctest.Wait()
		answered := f.start(s, "k", 1)
		time.Sleep(2900 * time.Millisecond)
		w.StallReplies("enter")
		released := harness.Begin(t, held.Release)
		err := answered.Failed()
		harness.Busy(f, err)
		redistest.WantNot(f, err, leasehold.ErrUnavailable, leasehold.ErrQueueFull)
		w.Heal()
		released.Got()

		f.take(other, "silent", 2)
		f.start(other, "silent", 1)
		synctest.Wait()
		f.start(s, "silent", 1)
		synctest.Wait()
		silent := f.start(s, "silent", 1)
		synctest.Wait()
		w.Stall()
		err = silent.Failed()
		redistest.WantErr(f, err, leasehold.ErrUnavailable)
		redistest.WantNot(f, err, leasehold.ErrBusy, leasehold.ErrQueueFull)
	})
}
