package mutex

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// The first reply to the release of a lock that was revoked is lost, and no hint has come: the
// repeated leave finds nothing, which is no proof that the first one gave the lock back.
func TestUnlockWhoseFirstReplyIsLostTellsOfARevocation(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
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
			bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
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
