package mutex

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/mutex"
)

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

// Tokens rise from turn to turn of a kept lock, and from process to process: the fence knows the
// last of them before the lock is handed on.
func TestTokensOfKeptLocksRise(t *testing.T) {
	each(t, func(f *fixture) {
		a, w := f.keeper()
		b, _ := f.open()
		last := f.turn(a, "k")
		enters := w.Ran(luascripts.PermitsEnter())
		for range 20 {
			token := f.turn(a, "k")
			redistest.CheckNow(f, token > last, "token %d after %d", token, last)
			last = token
		}
		redistest.Expect(f, w.Ran(luascripts.PermitsEnter())-enters, 0, "%d enters were sent; want none")
		l := redistest.Must(b.Lock(f.Context(), "k"))(f)
		redistest.Check(f, l.Token() > last, "token %d after %d", l.Token(), last)
		unlock(f, l)
		n := w.Ran(luascripts.PermitsLeaveTurns())
		redistest.Check(f, n != 0, "the leave did not tell the last turn's token")
	})
}

// The leave of a kept lock sets the fence to the last turn's token.
func TestFenceOfAKeptLockIsItsLastTurns(t *testing.T) {
	bubble(t, func(f *fixture) {
		a, _ := f.keeper()
		last := f.turn(a, "k")
		for range 5 {
			time.Sleep(time.Microsecond) // a token is not ahead of the clock
			last = f.turn(a, "k")
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		got, err := f.Server.Get(f.Part("k", "fence"))
		redistest.Check(f, err == nil && got == strconv.FormatUint(last, 10), "the fence is %s, %v; want %d", got, err, last)
	})
}

// DoOnce and Lead are not served from memory, and the process gives back what it keeps for them.
func TestKeptLockDoesNotHoldUpItsOwnProcess(t *testing.T) {
	each(t, func(f *fixture) {
		a, _ := f.keeper(func(c *mutex.Config) { c.KeepFor = 2 * time.Second })
		nothing := func(context.Context, uint64) error { return nil }
		f.turn(a, "try")
		redistest.Gives(a.TryDoOnce(f.Context(), "try", "s", time.Minute, nothing))(f, true)
		f.turn(a, "once")
		redistest.Gives(a.DoOnce(f.Context(), "once", "s", time.Minute, nothing))(f, true)
		f.turn(a, "lead")
		ctx, cancel := context.WithCancel(f.Context())
		redistest.WantErr(f, a.Lead(ctx, "lead", func(context.Context, uint64) error { cancel(); return nil }), context.Canceled)
		for _, key := range []string{"try", "once", "lead"} {
			f.wantHeld(key, false)
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
		var waiters []*harness.Call[*mutex.Lock]
		for range 3 {
			waiters = append(waiters, harness.Start(f.T, func() (*mutex.Lock, error) { return a.Lock(f.Context(), "k") }))
			synctest.Wait()
		}
		time.Sleep(20 * time.Millisecond)
		unlock(f, l)
		unlock(f, waiters[0].Got())
		time.Sleep(time.Millisecond)
		l = waiters[1].Got()
		redistest.Expect(f, w.Ran(luascripts.PermitsLeave())+w.Ran(luascripts.PermitsLeaveTurns()), 0, "%d leaves were sent; want none")
		other := line(f.Context(), b, f)
		synctest.Wait()
		unlock(f, l)
		unlock(f, other.Got()) // before the last waiter of a
		unlock(f, waiters[2].Got())
	})
}
