package mutex

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// line starts a Lock in a bubble that waits in its process, without a place of its own.
func line(ctx context.Context, m *mutex.Mutex, f *fixture) *waiting {
	w := f.start(ctx, m, "k")
	time.Sleep(5 * time.Millisecond)
	synctest.Wait()
	return w
}

// Turns of a process share a lease, with rising tokens, in the order of their calls; and
// the fence knows the last token in the end.
func TestTurnsOfAProcessShareALease(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(localFor(time.Second))
		first := f.take(m, "k")
		waiters := []*waiting{line(f.Context(), m, f), line(f.Context(), m, f), line(f.Context(), m, f)}
		redistest.Require(f, f.Queued("k"), 0, "%d are queued in Redis")
		redistest.WantErr(f, redistest.ErrorOf(m.TryLock(f.Context(), "k")), leasehold.ErrBusy)
		id, token := first.ID(), first.Token()
		unlock(f, first)
		redistest.WantErr(f, context.Cause(first.Context()), leasehold.ErrReleased) // which is first asked for now
		for _, w := range waiters {
			l := w.Got()
			redistest.CheckNow(f, l.ID() == id, "the turn is on %s, want %s", l.ID(), id)
			redistest.CheckNow(f, l.Token() == token+1, "the token is %d after %d", l.Token(), token)
			token = l.Token()
			unlock(f, l)
		}
		got := f.fence("k")
		redistest.CheckNow(f, got == token, "the fence is %d, the last token %d", got, token)
		l := f.take(m, "k")
		redistest.CheckNow(f, l.Token() > token, "token %d was granted after %d", l.Token(), token)
	})
}

// loop has goroutines of a process take turns until the test ends, and calls begun as each turn begins.
func (f *fixture) loop(m *mutex.Mutex, goroutines int, begun func(*mutex.Lock)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for ctx.Err() == nil {
				if l, err := m.Lock(ctx, "k"); err == nil {
					begun(l)
					time.Sleep(time.Millisecond)
					_ = l.Unlock()
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// No process keeps a key for longer than LocalFor from others that wait, whether they waited already or come later.
func TestAnotherProcessIsServedAfterLocalFor(t *testing.T) {
	bubble(t, func(f *fixture) {
		const most = 50 * time.Millisecond
		a, _ := f.open(localFor(most))
		b, _ := f.open()
		stop := f.loop(a, 3, func(*mutex.Lock) {})
		defer stop()
		for range 5 {
			time.Sleep(333 * time.Millisecond) // it may have asked and heard that nobody waits
			began := time.Now()
			l := f.start(f.Context(), b, "k").Got()
			redistest.AtMost(f, time.Since(began), most+20*time.Millisecond, "the other process waited for %v")
			unlock(f, l)
		}
	})
}

// Where nobody else waits, a lease serves turns for longer than LocalFor.
func TestALeaseStaysWhileNobodyElseWaits(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(localFor(50 * time.Millisecond))
		ids := map[string]bool{}
		var waiters []*waiting
		l := f.take(m, "k")
		for range 400 {
			waiters = append(waiters, f.start(f.Context(), m, "k"))
		}
		synctest.Wait()
		for range waiters {
			ids[l.ID()] = true
			time.Sleep(time.Millisecond)
			unlock(f, l)
			synctest.Wait()
			for i, w := range waiters {
				if w != nil && w.Ended() {
					l, waiters[i] = w.Got(), nil
				}
			}
		}
		unlock(f, l)
		redistest.CheckNow(f, len(ids) == 1, "400 turns of 1 ms were on %d leases", len(ids))
	})
}

// A process whose time is over gives back and queues again in one pipeline, with the enter first: nobody can come in
// between. Where nobody else waits it has the lock again after that one round trip.
func TestGivingBackAndQueueingAgainIsOneRoundTrip(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, wire := f.open(localFor(20 * time.Millisecond))
		l := redistest.Must(m.Lock(f.Context(), "k"))(f)
		var told string
		for range 2 { // the first time loads the scripts
			w := line(f.Context(), m, f)
			time.Sleep(30 * time.Millisecond)
			var sent []string
			wire.Fail(func(name string) error { sent = append(sent, name); return nil })
			trips := wire.TripCounter()
			unlock(f, l)
			l = w.Got()
			n := trips().Scripts
			wire.Fail(nil)
			told = fmt.Sprint(n, sent)
		}
		redistest.Expect(f, told, "1 [enter leave]", "round trips, and the calls: %s")
		unlock(f, l)
	})
}

// No token is ahead of the server's clock, however fast the turns are: else the grant
// after a crash could have a lower one. Turns that wait for a token that is not due wait for no lease that rests.
func TestTokensOfTurnsAreNotAheadOfTheClock(t *testing.T) {
	bubble(t, func(f *fixture) {
		for _, keep := range []time.Duration{0, time.Second} {
			m, _ := f.open(localFor(time.Second), func(c *mutex.Config) { c.KeepFor = keep })
			l := f.take(m, keep.String())
			time.Sleep(50 * time.Microsecond)
			first, local := l.ID(), 0
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					l := redistest.Must(m.Lock(f.Context(), keep.String()))(f)
					if l.ID() == first {
						local++
						redistest.AtMost(f, time.Until(time.UnixMicro(int64(l.Token()))), 0, "token %d is %v ahead of the clock", l.Token())
					}
					redistest.NoError(f, l.Unlock())
				})
			}
			synctest.Wait() // no time has passed
			unlock(f, l)
			all.Wait()
			redistest.Check(f, local == 50, "%d turns followed on the lease, one for each microsecond that it was held; want 50", local)
		}
	})
}

// keeper opens a handle that keeps locks for a second.
func (f *fixture) keeper(mod ...func(*mutex.Config)) (*mutex.Mutex, *harness.Wire) {
	f.Helper()
	return f.open(append([]func(*mutex.Config){func(c *mutex.Config) { c.KeepFor, c.TTL = time.Second, 5*time.Second }}, mod...)...)
}

// turn locks and unlocks, and returns the token.
func (f *fixture) turn(m *mutex.Mutex, key string) uint64 {
	f.Helper()
	l := redistest.Must(m.Lock(f.Context(), key))(f)
	unlock(f, l)
	return l.Token()
}

// Tokens rise from turn to turn of a kept lock, and from process to process: a leave tells the fence the last of them before
// the lock is handed on.
func TestTokensOfKeptLocksRise(t *testing.T) {
	each(t, func(f *fixture) {
		a, w := f.keeper()
		b, _ := f.open()
		last := f.turn(a, "k")
		enters := w.Sent("enter")
		for range 20 {
			token := f.turn(a, "k")
			redistest.CheckNow(f, token > last, "token %d after %d", token, last)
			last = token
		}
		redistest.Expect(f, w.Sent("enter")-enters, 0, "%d enters were sent; want none")
		l := redistest.Must(b.Lock(f.Context(), "k"))(f)
		redistest.Check(f, l.Token() > last, "token %d after %d", l.Token(), last)
		unlock(f, l)
		redistest.Check(f, w.Sent("leave turns") != 0, "the leave did not tell the last turn's token")
		for range 5 {
			last = f.turn(a, "another")
		}
		harness.Close(f.T, a)
		redistest.Expect(f, f.fence("another"), last, "the fence is %d; want the last turn's token")
	})
}

// DoOnce and Lead are not served from memory, and the process gives back what it keeps for them.
func TestKeptLockDoesNotHoldUpItsOwnProcess(t *testing.T) {
	each(t, func(f *fixture) {
		a, _ := f.keeper(func(c *mutex.Config) { c.KeepFor = 2 * time.Second })
		f.turn(a, "try")
		redistest.Gives(a.TryDoOnce(f.Context(), "try", "s", time.Minute, nothing))(f, true)
		f.turn(a, "once")
		redistest.Gives(a.DoOnce(f.Context(), "once", "s", time.Minute, nothing))(f, true)
		f.turn(a, "lead")
		ctx, cancel := context.WithCancel(f.Context())
		redistest.WantErr(f, a.Lead(ctx, "lead", func(context.Context, uint64) error { cancel(); return nil }), context.Canceled)
		for _, key := range []string{"try", "once", "lead"} {
			f.WantHeld(key, 0)
		}
	})
}

// With LocalFor, callers of the process that wait are served from a kept lease for as long as nobody else wants it.
func TestKeptLockServesCallersThatWait(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, w := f.keeper(localFor(5 * time.Millisecond))
		b, _ := f.open()
		f.turn(a, "k")
		time.Sleep(300 * time.Millisecond) // LocalFor is over
		l := f.take(a, "k")
		waiters := make([]*waiting, 3)
		for i := range waiters {
			waiters[i] = f.start(f.Context(), a, "k")
			synctest.Wait()
		}
		time.Sleep(20 * time.Millisecond)
		unlock(f, l)
		unlock(f, waiters[0].Got())
		time.Sleep(time.Millisecond)
		l = waiters[1].Got()
		redistest.Expect(f, w.Sent("leave", "leave turns"), 0, "%d leaves were sent; want none")
		other := line(f.Context(), b, f)
		synctest.Wait()
		unlock(f, l)
		unlock(f, other.Got()) // before the last waiter of a
		unlock(f, waiters[2].Got())
	})
}
