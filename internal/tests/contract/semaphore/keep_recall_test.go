package semaphore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// A request that finds no room recalls what rests, whether its own process keeps leases or not.
func TestKeptPermitsAreRecalled(t *testing.T) {
	each(t, func(f *fixture) {
		a, w := f.keeper(limit(2))
		b, _ := f.open(limit(2))
		c, _ := f.keeper(limit(2))
		for _, other := range []*semaphore.Semaphore{b, c} {
			redistest.Eventually(f, "two permits to rest", func() bool { // after the mark, and the keeper's own pause
				first, second := f.start(a, "k", 1).Got(), f.start(a, "k", 1).Got()
				release(f, first)
				release(f, second)
				return len(f.Held("k")) == 2
			})
			first, second := f.start(other, "k", 1).Got(), f.start(other, "k", 1).Got()
			redistest.WantErr(f, redistest.ErrorOf(a.TryAcquire(f.Context(), "k")), leasehold.ErrBusy)
			redistest.WantErr(f, first.Extend(f.Context(), time.Minute)) // so that it is not kept
			redistest.WantErr(f, second.Extend(f.Context(), time.Minute))
			release(f, first)
			release(f, second)
		}
		redistest.AtLeast(f, w.Sent("leave"), 4, "%d leaves were sent")
	})
}

// TryAcquire waits a moment for permits that rest elsewhere, and so does a second one right after it: with a subscription
// the recall takes no time but that of its messages. While refusals follow each other, only the first one waits.
func TestTryAcquireAwaitsKeptPermits(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, _ := f.keeper(limit(2))
		b, _ := f.open(limit(2))
		f.keep(a, "k", 2)
		synctest.Wait()
		try := func() *waiting {
			return harness.Start(f.T, func() (*semaphore.Lease, error) { return b.TryAcquire(f.Context(), "k") })
		}
		began, first, second := time.Now(), try(), try()
		l := first.Got()
		release(f, second.Got())
		redistest.AtMost(f, time.Since(began), time.Millisecond, "the recall took %v")
		release(f, l)

		// In use, they do not come.
		time.Sleep(time.Second)
		used := []*semaphore.Lease{f.take(a, "k", 1), f.take(a, "k", 1)}
		refused := func() time.Duration {
			synctest.Wait() // the try before has left the queue
			began := time.Now()
			busy := harness.Busy(f, try().Failed())
			redistest.Check(f, busy.InUse == 2 && busy.Waiting == 0, "%v; want 2 in use, and that nobody waits", busy)
			return time.Since(began)
		}
		redistest.Between(f, refused(), 50*time.Millisecond, 250*time.Millisecond, "the first refusal took %v")
		for range 20 {
			redistest.AtMost(f, refused(), time.Millisecond, "a refusal right after another took %v")
			time.Sleep(90 * time.Millisecond)
		}
		for _, l := range used {
			release(f, l)
		}
		synctest.Wait()
		f.WantHeld("k", 0) // they were recalled
	})
}

// A lease in use when the recall comes is given back at its release.
func TestRecalledPermitInUseIsNotKept(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, _ := f.keeper()
		b, _ := f.open()
		f.keep(a, "k", 1)
		used := f.take(a, "k", 1)
		synctest.Wait() // it listens
		redistest.WantErr(f, redistest.ErrorOf(b.TryAcquire(f.Context(), "k")), leasehold.ErrBusy)
		synctest.Wait()
		release(f, used)
		f.WantHeld("k", 0)
	})
}

// A lease that was waited for is not kept, and neither is one that was granted while others have just found no room.
func TestContendedPermitIsNotKept(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, _ := f.keeper()
		b, _ := f.keeper()
		other := f.take(b, "k", 1)
		waited := f.wait(f.Context(), a, "k", 1)
		release(f, other)
		release(f, waited.Got())
		f.WantHeld("k", 0)

		time.Sleep(time.Second) // the mark is over
		l := f.take(a, "k", 1)
		redistest.WantErr(f, redistest.ErrorOf(b.TryAcquire(f.Context(), "k")), leasehold.ErrBusy)
		synctest.Wait()
		release(f, l)
		synctest.Wait()
		f.keep(b, "k", 1) // under the mark
		f.WantHeld("k", 0)
		time.Sleep(time.Second)
		f.keep(b, "k", 1)
		f.WantHeld("k", 1)
	})
}

// A recall whose message is lost costs a second, of a request that waits and of one that is repeated.
func TestLostRecall(t *testing.T) {
	bubble(t, func(f *fixture) {
		b, _ := f.open()
		ctx := f.Within(redistest.Soon)
		for name, ask := range map[string]func(ctx context.Context, key string) (*semaphore.Lease, error){"Acquire": b.Acquire, "TryAcquire": b.TryAcquire} {
			a, w := f.keeper(keepFor(2 * time.Second))
			f.inspect(a, name)       // so that it has a connection
			letDial := w.HoldDials() // it never has a subscription
			id := f.keep(a, name, 1)[0]
			synctest.Wait()
			began := time.Now()
			l, err := ask(ctx, name)
			for ; errors.Is(err, leasehold.ErrBusy) && ctx.Err() == nil; l, err = ask(ctx, name) {
				time.Sleep(10 * time.Millisecond)
			}
			redistest.WantErr(f, err)
			redistest.AtMost(f, time.Since(began), 1100*time.Millisecond, "%s was served after %v", name)
			release(f, l)
			letDial()
			next := f.take(a, name, 1)
			redistest.Check(f, next.ID() != id, "the lease that was given back serves another turn")
			release(f, next)
		}
	})
}

// While turns follow each other in a process, its question whether anybody waits tells of a recall that was not heard.
func TestLostRecallDuringLocalTurns(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, _ := f.keeper(localFor(20 * time.Millisecond))
		ctx, cancel := context.WithCancel(f.Context())
		var callers sync.WaitGroup
		defer callers.Wait()
		defer cancel()
		for range 2 {
			callers.Go(func() {
				for ctx.Err() == nil {
					_ = a.Do(ctx, "k", func(context.Context) error { time.Sleep(time.Millisecond); return nil })
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		b, _ := f.open()
		f.RDB.Del(f.Context(), f.Part("k", "keepers")) // so that nobody is told
		began := time.Now()
		release(f, f.start(b, "k", 1).Got())
		redistest.AtMost(f, time.Since(began), 22*time.Millisecond, "it was served after %v")
	})
}

// While Redis is silent, nothing is kept for longer than 2 s.
func TestNothingIsKeptWhileRedisIsSilent(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, w := f.keeper(keepFor(2500 * time.Millisecond))
		f.keep(a, "k", 1)
		synctest.Wait()
		w.Refuse()
		for range 19 {
			time.Sleep(100 * time.Millisecond)
			release(f, f.take(a, "k", 1))
		}
		time.Sleep(150 * time.Millisecond)
		redistest.WantErr(f, redistest.ErrorOf(a.TryAcquire(f.Context(), "k")), leasehold.ErrUnavailable)
	})
}

// Leases of another weight of the same process are given back for a request that needs their permits.
func TestOwnPermitsOfAnotherWeightAreRecalled(t *testing.T) {
	rounds := func(f *fixture, n int) {
		s, _ := f.keeper(limit(4), ttl(20*time.Second), keepFor(10*time.Second))
		for round := range n {
			if round > 0 {
				time.Sleep(200 * time.Millisecond) // the mark, and the pause
			}
			f.keep(s, "k", 4)
			waited := f.RDB.ZCard(f.Context(), f.Part("k", "alive")) // also a tombstone of the last round
			release(f, f.take(s, "k", 3))                            // a try
			f.WantHeld("k", 3)
			n := f.RDB.ZCard(f.Context(), f.Part("k", "alive")).Val()
			redistest.Check(f, n <= waited.Val(), "the try found no room before the process had given back its other leases")
			l := f.start(s, "k", 2).Got()
			f.WantHeld("k", 2)
			redistest.WantErr(f, l.Extend(f.Context(), time.Minute))
			release(f, l)
		}
	}
	each(t, func(f *fixture) { rounds(f, 1) })
	// Elsewhere the message of the recall may come late, in the middle of the second round.
	t.Run("again", func(t *testing.T) { bubble(t, func(f *fixture) { rounds(f, 2) }) })
}

// A limit that is set below what is in use recalls what rests.
func TestLoweredLimitRecallsKeptPermits(t *testing.T) {
	each(t, func(f *fixture) {
		a, _ := f.keeper(limit(4), keepFor(2*time.Second))
		b, _ := f.open(limit(4))
		f.keep(a, "k", 3)
		redistest.Eventually(f, "a subscription", func() bool { return len(f.Subscribed("leasehold")) > 0 })
		redistest.WantErr(f, b.SetLimit(f.Context(), "k", 3))
		f.WantHeld("k", 3)
		redistest.WantErr(f, b.SetLimit(f.Context(), "k", 2))
		redistest.Eventually(f, "the permits to be given back", func() bool { return len(f.Held("k")) == 0 })
	})
}

// Revoke takes a lease that rests for good. When Redis has forgotten one lease, the process gives back its others of that
// key. Nobody is told of the loss of a lease that rests.
func TestKeptPermitsThatRedisForgets(t *testing.T) {
	bubble(t, func(f *fixture) {
		var events harness.Told
		a, w := f.keeper(limit(4), keepFor(2*time.Second), observer(&events))
		b, _ := f.open(limit(4))
		ids := f.keep(a, "k", 4)
		time.Sleep(200 * time.Millisecond)
		redistest.WantErr(f, b.Revoke(f.Context(), "k", ids[3], "a test"))
		synctest.Wait()
		l := f.take(a, "k", 1)
		redistest.Check(f, l.ID() == ids[2], "the next turn has lease %s; want %s", l.ID(), ids[2])
		release(f, l)
		f.Server.FlushAll()
		time.Sleep(1100 * time.Millisecond) // it has asked
		enters := w.Sent("enter")
		l = f.take(a, "k", 1)
		redistest.Check(f, !slices.Contains(ids, l.ID()), "a turn began on a lease that Redis has forgotten")
		redistest.Expect(f, w.Sent("enter")-enters, 1, "%d enters")
		release(f, l)
		f.Server.FlushAll()
		release(f, f.take(a, "k", 2)) // before which the lease that rests goes back
		for _, e := range events.Events() {
			lost := e.Outcome == leasehold.OutcomeLost || e.Outcome == leasehold.OutcomeRevoked
			redistest.Check(f, e.Kind != leasehold.EventLeaseEnded && !(lost && e.Kind != leasehold.EventRenewed), "told of %+v", e)
		}
	})
}

// After recalls before which keeping has saved nothing, the process keeps nothing for a while,
// which doubles up to 3.2 s.
func TestKeepingPausesAfterUselessRecalls(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, _ := f.keeper()
		b, _ := f.open()
		pause := 100 * time.Millisecond
		for range 7 {
			f.keep(a, "k", 1)
			f.WantHeld("k", 1)
			synctest.Wait()
			release(f, f.start(b, "k", 1).Got())
			time.Sleep(pause - time.Millisecond)
			f.keep(a, "k", 1)
			f.WantHeld("k", 0)
			time.Sleep(10 * time.Millisecond)
			pause = min(2*pause, 3200*time.Millisecond)
		}
		f.keep(a, "k", 1)
		f.keep(a, "k", 1)
		f.keep(a, "k", 1)
		synctest.Wait()
		release(f, f.start(b, "k", 1).Got())
		time.Sleep(150 * time.Millisecond) // the mark is over, and keeping has paid
		f.keep(a, "k", 1)
		f.WantHeld("k", 1)
	})
}
