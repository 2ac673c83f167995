package semaphore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// wantRevoked checks that err says that an operator took the lease away, and why.
func wantRevoked(f testing.TB, err error, reason string) {
	f.Helper()
	redistest.WantErr(f, err, leasehold.ErrRevoked, leasehold.ErrLost)
	revoked := new(leasehold.RevokedError)
	redistest.Check(f, errors.As(err, &revoked) && revoked.Reason == reason, "%v; want the reason %q", err, reason)
}

// plainAndTotal runs a test with a plain family, and with one that has a total of n.
func plainAndTotal(t *testing.T, n int, test func(f *fixture, settings ...func(*semaphore.Config))) {
	t.Run("plain", func(t *testing.T) { each(t, func(f *fixture) { test(f) }) })
	t.Run("total", func(t *testing.T) { each(t, func(f *fixture) { test(f, total(n)) }) })
}

// A revoked lease's permits are all passed on in the same step; its holder's Context
// ends with the reason, by the message alone; and its Release says so.
func TestRevokePassesAllPermitsOn(t *testing.T) {
	plainAndTotal(t, 2, func(f *fixture, settings ...func(*semaphore.Config)) {
		settings = append(settings, limit(2), prefixed(f))
		holder, _ := f.open(settings...)
		operator, _ := f.open(settings...)
		for _, listens := range []bool{true, false} { // at first nobody else subscribes
			l := f.take(holder, "k", 2)
			if listens {
				redistest.Eventually(f, "the holder's subscription", func() bool { return len(f.Subscribed(f.Family)) > 0 })
			}
			next := harness.Start(f.T, func() (*semaphore.Lease, error) { return operator.AcquireN(f.Context(), "k", 2) })
			redistest.Eventually(f, "a waiter", func() bool { return f.inspect(operator, "k").Waiting == 1 })
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", l.ID(), "it hangs: ticket 4711"))
			state := f.inspect(operator, "k")
			redistest.Check(f, len(state.Holders) == 1 && state.Holders[0].ID != l.ID() && state.Holders[0].Permits == 2 && state.Waiting == 0,
				"after the revoke: %+v", state)
			got := next.Got()
			if listens { // else its process may not have subscribed yet
				redistest.Get(f, "the end of the holder's Context", l.Context().Done())
				wantRevoked(f, context.Cause(l.Context()), "it hangs: ticket 4711")
			}
			wantRevoked(f, l.Release(), "it hangs: ticket 4711")
			redistest.WantErr(f, l.Release(), leasehold.ErrReleased)
			for range 2 { // again: the mark says so
				redistest.NoError(f, operator.Revoke(f.Context(), "k", l.ID(), "again"))
			}
			state = f.inspect(operator, "k")
			redistest.Check(f, state.InUse == 2 && state.Holders[0].ID == got.ID(), "after the same revoke again: %+v", state)
			release(f, got)
		}
	})
}

// Revoke of what is not there, and with arguments that can't be served.
func TestRevokeErrors(t *testing.T) {
	plainAndTotal(t, 2, func(f *fixture, settings ...func(*semaphore.Config)) {
		s, _ := f.open(append(settings, limit(2))...)
		l := f.take(s, "k", 1)
		other := f.take(s, "other", 1)
		for _, id := range []string{"", "x", l.ID() + "0", "*-1", "????????-1", l.ID()[:8] + "-*", other.ID()} {
			redistest.WantErr(f, s.Revoke(f.Context(), "k", id, "r"), leasehold.ErrNoLease)
		}
		redistest.WantErr(f, s.Revoke(f.Context(), "", "no ID", "r"), leasehold.ErrInvalid)
		for reason, text := range map[string]string{
			"": "reason is empty", strings.Repeat("x", 201): "reason has 201 bytes", "a\nb": "cannot be printed", "a\xffb": "cannot be printed",
		} {
			err := s.Revoke(f.Context(), "k", l.ID(), reason)
			redistest.WantErr(f, err, leasehold.ErrInvalid, redistest.Says(text, "want 1 to 200 printable bytes"))
		}
		redistest.WantErr(f, s.Revoke(f.Context(), "", l.ID(), "r"), leasehold.ErrInvalid)
		redistest.WantErr(f, s.Revoke(harness.Ended(f.Context()), "k", l.ID(), "r"), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		release(f, l)
		release(f, other)
		redistest.WantErr(f, s.Revoke(f.Context(), "k", l.ID(), "r"), leasehold.ErrNoLease)
		redistest.WantErr(f, s.Close(f.Context()))
		redistest.WantErr(f, s.Revoke(f.Context(), "k", l.ID(), "r"), leasehold.ErrClosed)
	})
}

// A key may have bytes that also stand between the words of an entry in Redis.
func TestRevokeOfAKeyThatLooksLikeAnEntry(t *testing.T) {
	plainAndTotal(t, 1, func(f *fixture, settings ...func(*semaphore.Config)) {
		s, _ := f.open(append(settings, limit(1))...)
		for _, key := range []string{"one two", " ", "a+2", "a.1.2", "a:b", "*", "[a]\\"} {
			l := f.take(s, key, 1)
			w := f.start(s, key, 1)
			redistest.Eventually(f, "the waiter in line", func() bool { return f.inspect(s, key).Waiting == 1 })
			redistest.NoError(f, s.Revoke(f.Context(), key, f.inspect(s, key).Waiters[0].ID, "a waiter"))
			wantRevoked(f, w.Failed(), "a waiter")
			redistest.NoError(f, s.Revoke(f.Context(), key, l.ID(), "a holder"))
			wantRevoked(f, l.Release(), "a holder")
		}
	})
}

// A Revoke without an answer does not say that the lease is gone: it may be held.
func TestRevokeWithoutAnAnswerIsNoSuccess(t *testing.T) {
	bubble(t, func(f *fixture) {
		for _, all := range []int{0, 2} {
			s, _ := f.open(limit(2), total(all))
			l := f.take(s, "k", 1)
			operator, wire := f.open(limit(2), total(all))
			f.inspect(operator, "k")
			wire.CutOff("revoke", "totals revoke")
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", l.ID(), "a test"), leasehold.ErrUnavailable)
			state := f.inspect(operator, "k")
			redistest.Check(f, state.InUse == 1 && l.Context().Err() == nil, "after a Revoke that was not sent, %d permits are in use", state.InUse)
			wire.Heal()
			redistest.NoError(f, operator.Revoke(f.Context(), "k", l.ID(), "a test"))
			<-l.Context().Done()
		}
	})
}

// A holder that no hint reaches learns by its next renewal that it was revoked, and why.
func TestRevokedHolderLearnsByItsRenewal(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.open(ttl(9 * time.Second))
		l := f.take(s, "k", 1)
		time.Sleep(time.Second) // its process listens, and has asked once
		// What a Revoke leaves behind, without its message.
		began := time.Now()
		f.RDB.Del(f.Context(), f.Part("k", "holders"))
		f.RDB.HSet(f.Context(), f.Part("k", "revoked"), l.ID(), "it hangs")
		<-l.Context().Done()
		wantRevoked(f, context.Cause(l.Context()), "it hangs")
		redistest.AtMost(f, time.Since(began), 3*time.Second, "it was told after %v")
		wantRevoked(f, l.Release(), "it hangs")
	})
}
