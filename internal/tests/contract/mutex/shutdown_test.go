package mutex

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// shutDown calls Shutdown in another goroutine of a bubble, and returns once it waits.
func shutDown(ctx context.Context, m *mutex.Mutex) <-chan error {
	done := make(chan error, 1)
	go func() { done <- m.Shutdown(ctx) }()
	time.Sleep(time.Millisecond)
	synctest.Wait()
	return done
}

func TestShutdownLetsHoldersFinish(t *testing.T) {
	withAndWithoutLocalFor(t, func(f *fixture, most time.Duration) {
		m, _ := f.open(ttl(time.Second), localFor(most))
		other, _ := f.open()
		held, theirs := f.take(m, "k"), f.take(other, "theirs")
		mine := harness.Start(f.T, func() (*mutex.Lock, error) { return m.Lock(f.Context(), "k") })
		others := f.wait(f.Context(), m, "theirs")
		time.Sleep(time.Second)
		done := shutDown(f.Context(), m)
		for _, w := range []*waiting{mine, others} {
			redistest.Get(f, "the waiter's end", w.Done)
			redistest.WantErr(f, w.Failed(), leasehold.ErrClosed)
		}
		_, err := m.TryLock(f.Context(), "new")
		redistest.WantErr(f, err, leasehold.ErrClosed)
		time.Sleep(10 * time.Second) // longer than the TTL: the lease is renewed
		if err := held.Context().Err(); err != nil {
			f.Errorf("the holder's Context has ended: %v", context.Cause(held.Context()))
		}
		redistest.NoError(f, held.Extend(f.Context(), 2*time.Second))
		select {
		case err := <-done:
			f.Fatalf("Shutdown returned %v beside a holder", err)
		default:
		}
		f.wantHeld("k", true)
		unlock(f, held)
		redistest.NoError(f, redistest.Get(f, "Shutdown", done))
		f.wantHeld("k", false)
		unlock(f, theirs)
		if err := m.Shutdown(f.Context()); err != nil { // a second one does no harm
			f.Error(err)
		}
	})
}

// When its ctx ends, Shutdown is a Close.
func TestShutdownIsBoundedByItsCtx(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open()
		held := f.take(m, "k")
		ctx, cancel := context.WithTimeout(f.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		err := redistest.Get(f, "Shutdown", shutDown(ctx, m))
		redistest.Expect(f, time.Since(began), 3*time.Second, "it took %v")
		redistest.WantErr(f, err, context.DeadlineExceeded)
		redistest.WantErr(f, context.Cause(held.Context()), leasehold.ErrClosed)
		redistest.NoError(f, m.Close(f.Context()))
		f.wantHeld("k", false)
	})
}

// A lock that is lost is not waited for.
func TestShutdownEndsWithALostLock(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(ttl(3 * time.Second))
		held := f.take(m, "k")
		done := shutDown(f.Context(), m)
		f.Server.FlushAll()
		redistest.NoError(f, redistest.Get(f, "Shutdown", done))
		redistest.WantErr(f, context.Cause(held.Context()), leasehold.ErrLost)
	})
}

// The first reply to the release of a lock that was revoked is lost, and no hint has come: the
// repeated leave finds nothing, which is no proof that the first one gave the lock back.
func TestUnlockWhoseFirstReplyIsLostTellsOfARevocation(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, w := f.open()
		operator, _ := f.open()
		l, kept := f.take(m, "k"), f.take(m, "kept")
		redistest.WantErr(f, operator.Revoke(f.Context(), "k", l.ID(), "a test"))
		for _, c := range []struct {
			l    *mutex.Lock
			want error
		}{{l, leasehold.ErrRevoked}, {kept, nil}} {
			w.Patience = 10 * time.Millisecond
			release := w.StallReplies("leave")
			time.AfterFunc(11*time.Millisecond, release)
			err := c.l.Unlock()
			redistest.Check(f, errors.Is(err, c.want), "Unlock of %s says %v; want %v", c.l.Key(), err, c.want)
			w.Heal()
		}
	})
}

// A waiter is revoked, and its signs of life are lost, which would say so: it gets no lock. It
// is told the reason once one is answered, and else that Redis is unavailable.
func TestRevokedWaiterWhoseAsksAreLostGetsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		lost time.Duration
		want error
	}{"for a second": {time.Second, leasehold.ErrRevoked}, "for a minute": {time.Minute, leasehold.ErrUnavailable}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				m, w := f.open()
				operator, _ := f.open()
				held := f.take(operator, "k")
				waiter := f.wait(f.Context(), m, "k")
				state, err := operator.Inspect(f.Context(), "k")
				redistest.CheckNow(f, err == nil && len(state.Waiters) == 1, "%v, %v", state, err)
				w.CutOff("ask")
				time.AfterFunc(c.lost, w.Heal)
				redistest.WantErr(f, operator.Revoke(f.Context(), "k", state.Waiters[0].ID, "a test"))
				time.AfterFunc(2*time.Second, func() { _ = held.Unlock() })
				<-waiter.Done
				redistest.Check(f, errors.Is(waiter.Err, c.want), "the revoked waiter ended with %v; want %v", waiter.Err, c.want)
			})
		})
	}
}
