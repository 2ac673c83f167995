package mutex

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A place in the queue is the process's: if the waiter that took it leaves, the next one of the process
// has its turn in that place. If the last waiter leaves, the place is given up.
func TestAPlaceOutlivesTheWaiterThatTookIt(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, _ := f.open(localFor(20 * time.Millisecond))
		b, _ := f.open()
		held := f.take(b, "k")
		ctx, cancel := context.WithCancel(f.Context())
		first := line(ctx, a, f)
		second := line(f.Context(), a, f)
		other := line(f.Context(), b, f)
		redistest.Require(f, f.Queued("k"), 2, "%d are queued, want one for each process")
		cancel()
		redistest.WantErr(f, first.Failed(), context.Canceled, leasehold.ErrBusy)
		time.Sleep(100 * time.Millisecond)
		unlock(f, held)
		l := second.Got()
		redistest.CheckNow(f, !other.Ended(), "the process lost its place")
		unlock(f, l)
		held = other.Got()
		ctx, cancel = context.WithCancel(f.Context())
		last := line(ctx, a, f)
		cancel()
		redistest.WantErr(f, last.Failed(), context.Canceled)
		time.Sleep(100 * time.Millisecond)
		redistest.Require(f, f.Queued("k"), 0, "%d are queued")
		unlock(f, held)
	})
}

// A lease that was extended is given back, not passed on.
func TestAnExtendedLeaseIsNotPassedOn(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(localFor(time.Second))
		l := f.take(m, "k")
		w := line(f.Context(), m, f)
		redistest.WantErr(f, l.Extend(f.Context(), time.Hour))
		unlock(f, l)
		next := w.Got()
		left := time.Until(next.Deadline())
		redistest.CheckNow(f, next.ID() != l.ID() && left <= time.Minute, "the extended lease was passed on, for %v", left)
		redistest.CheckNow(f, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
		unlock(f, next)
	})
}

// A lost lease is replaced at once, even if its holder hangs.
func TestALostLeaseIsReplacedThoughItsHolderHangs(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(localFor(100*time.Millisecond), ttl(600*time.Millisecond))
		l := f.take(m, "k")
		w := line(f.Context(), m, f)
		f.Server.Del(f.Part("k", "holders"))
		time.Sleep(time.Second)
		next := w.Got()
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrReleased)
		redistest.WantErr(f, next.Context().Err())
		unlock(f, next)
	})
}

// MaxWaiters bounds the line of a process, and the places in Redis; a process that queues again is not refused.
func TestMaxWaitersOfLines(t *testing.T) {
	bubble(t, func(f *fixture) {
		most := func(c *mutex.Config) { c.MaxWaiters = 1 }
		a, _ := f.open(localFor(20*time.Millisecond), most)
		b, _ := f.open(most)
		l := f.take(a, "k")
		w := line(f.Context(), a, f)
		err := redistest.ErrorOf(a.Lock(f.Context(), "k"))
		redistest.WantErr(f, err, leasehold.ErrQueueFull)
		harness.Busy(f, err) // it has figures
		other := line(f.Context(), b, f)
		time.Sleep(50 * time.Millisecond)
		unlock(f, l)
		l = other.Got()
		redistest.CheckNow(f, !w.Ended(), "the waiter ended with %v while another process has the lock", w.Err)
		unlock(f, l)
		unlock(f, w.Got())
	})
}

// A token that was counted on from the last one, since the server's clock went back, is ahead of the clock. A process
// numbers no turns from it: if it died, the next grant's token could be below theirs.
func TestATokenAheadOfTheClockIsNotCountedOn(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(localFor(time.Second))
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		redistest.WantErr(f, f.Server.Set(f.Part("k", "fence"), strconv.FormatUint(ahead, 10)))
		l := f.take(m, "k")
		for turn := range uint64(3) {
			redistest.Require(f, l.Token(), ahead+1+turn, "turn %d has token %d", turn)
			redistest.Require(f, f.fence("k"), l.Token(), "at turn %d the fence is %d", turn)
			w := line(f.Context(), m, f)
			unlock(f, l)
			l = w.Got()
		}
		unlock(f, l)
	})
}

// A process has numbered the tokens of its turns itself, and the server's clock has gone back since, as after a failover to
// a replica with a clock that is behind. Then the lease is revoked: the next owner's token is above those of all turns.
func TestTokensRiseAfterARevocationOnAClockThatWentBack(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(localFor(time.Second))
		other, _ := f.open()
		l := f.take(m, "k")
		for range 3 {
			w := line(f.Context(), m, f)
			time.Sleep(time.Millisecond)
			unlock(f, l)
			l = w.Got()
		}
		redistest.Check(f, l.Token() > f.fence("k"), "the fence knows the token of the turn")
		f.Server.SetTime(time.Now().Add(-10 * time.Second))
		redistest.WantErr(f, other.Revoke(f.Context(), "k", l.ID(), "a test"))
		next := f.take(other, "k")
		redistest.Check(f, next.Token() > l.Token(), "the token %d comes after %d", next.Token(), l.Token())
		redistest.WantErr(f, l.Unlock(), leasehold.ErrRevoked)
		unlock(f, next)
	})
}

// MaxWait of the first caller, whose enter is not answered, ends its wait alone.
func TestMaxWaitOfTheFirstCallerIsItsOwn(t *testing.T) {
	bubble(t, func(f *fixture) {
		const most = 300 * time.Millisecond
		m, wire := f.open(localFor(20*time.Millisecond), func(c *mutex.Config) { c.MaxWait = most })
		unlock(f, f.take(m, "k"))
		wire.Stall()
		first := f.start(f.Context(), m, "k")
		time.Sleep(most / 2)
		second := f.start(f.Context(), m, "k")
		time.Sleep(most/2 + most/4)
		redistest.WantErr(f, first.Failed(), leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy))
		redistest.CheckNow(f, !second.Ended(), "the second caller ended with %v", second.Err)
		wire.Heal()
		unlock(f, second.Got())
	})
}

// MaxHold bounds each turn, not the lease that the turns share.
func TestMaxHoldBoundsEachTurn(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(localFor(time.Second), maxHold(200*time.Millisecond))
		l := f.take(m, "k")
		id := l.ID()
		for range 4 {
			w := line(f.Context(), m, f)
			time.Sleep(150 * time.Millisecond)
			err := l.Context().Err()
			redistest.CheckNow(f, err == nil, "a turn within MaxHold ended: %v", context.Cause(l.Context()))
			unlock(f, l)
			if l = w.Got(); l.ID() != id {
				f.Fatal("the lease was not passed on")
			}
		}
		w := line(f.Context(), m, f)
		time.Sleep(250 * time.Millisecond)
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrMaxHold, leasehold.ErrLost)
		next := w.Got()
		redistest.CheckNow(f, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
		redistest.WantErr(f, l.Unlock(), leasehold.ErrMaxHold)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrReleased)
		redistest.Require(f, next.Context().Err(), nil, "the turn of another ended: %v")
		unlock(f, next)
	})
}

// Deadline is never after the end of MaxHold, also if the lock is extended. MaxHold frees the lock at once. The
// Observer and the log are told of a turn that it ends as of a lease that it ends, and an Extend that it overtakes
// tells of MaxHold, and not of a release.
func TestMaxHoldEndsALock(t *testing.T) {
	withAndWithoutLocalFor(t, func(f *fixture, most time.Duration) {
		var events harness.Told
		var log strings.Builder
		m, wire := f.open(ttl(30*time.Second), localFor(most), maxHold(40*time.Second), observer(&events), logger(&log))
		other, _ := f.open()
		began := time.Now()
		l := f.take(m, "k")
		next := f.wait(f.Context(), other, "k")
		redistest.WantErr(f, l.Extend(f.Context(), time.Hour))
		for ; l.Context().Err() == nil; time.Sleep(time.Second) {
			at := l.Deadline().Sub(began)
			redistest.CheckNow(f, at <= 40*time.Second, "after %v the deadline is %v after the grant", time.Since(began), at)
		}
		redistest.Expect(f, l.Deadline().Sub(began), 40*time.Second, "at the end the deadline is %v after the grant")
		cause := context.Cause(l.Context())
		redistest.WantErr(f, cause, leasehold.ErrMaxHold, leasehold.ErrLost, redistest.Not(leasehold.ErrReleased, leasehold.ErrRevoked))
		synctest.Wait()
		redistest.CheckNow(f, next.Ended(), "the waiter has no lock %v after the grant", time.Since(began))
		redistest.WantErr(f, l.Unlock(), leasehold.ErrLost, leasehold.ErrMaxHold)
		unlock(f, next.Got())
		synctest.Wait() // for the log
		for what, n := range map[string]int{
			"ends of a hold":  events.Count(leasehold.EventHoldEnded, leasehold.OutcomeMaxHold),
			"ends of a lease": events.Count(leasehold.EventLeaseEnded, leasehold.OutcomeMaxHold),
			"stale releases":  events.Count(leasehold.EventStaleRelease, ""),
			"lines of log":    strings.Count(log.String(), "cause=max_hold"),
		} {
			redistest.Check(f, n == 1, "%d %s, want 1; log %q", n, what, log.String())
		}
		l = f.take(m, "k")
		time.Sleep(39900 * time.Millisecond)
		letGo := wire.StallReplies("renew")
		extended := harness.Begin(f, func() error { return l.Extend(f.Context(), time.Minute) })
		time.Sleep(200 * time.Millisecond)
		letGo()
		redistest.WantErr(f, extended.Failed(), leasehold.ErrMaxHold)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrMaxHold)
	})
}

// An Extend that is answered as MaxHold ends the turn does not say that the lock is held.
func TestExtendIsAnsweredAsMaxHoldEndsTheTurn(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, wire := f.open(localFor(20*time.Millisecond), maxHold(time.Second))
		for range 50 { // the answer and the end race
			l := f.start(f.Context(), m, "k").Got()
			tell := wire.StallReplies("renew")
			extended := harness.Begin(f, func() error { return l.Extend(context.Background(), 900*time.Millisecond) })
			<-l.Context().Done()
			tell()
			redistest.WantErr(f, extended.Failed(), leasehold.ErrMaxHold)
			redistest.WantErr(f, l.Unlock(), leasehold.ErrMaxHold)
		}
	})
}
