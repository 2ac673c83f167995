package mutex

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A revoked lock goes to the next waiter with a greater token, its holder's Context ends
// with the reason, and Unlock and Extend say so. Keys that appear as a hash only are
// found, too.
func TestRevokePassesTheLockOn(t *testing.T) {
	each(t, func(f *fixture) {
		hashed := func(c *mutex.Config) { c.HashKeys = true }
		holder, _ := f.open(hashed)
		operator, _ := f.open(hashed)
		l, err := holder.Lock(f.Context(), "k")
		if err != nil {
			f.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // its process has subscribed by then
		next := harness.Start(f.T, func() (*mutex.Lock, error) { return operator.Lock(f.Context(), "k") })
		redistest.Eventually(f, "a waiter", func() bool {
			state, err := operator.Inspect(f.Context(), "k")
			return err == nil && state.Waiting == 1
		})
		if err := operator.Revoke(f.Context(), "k", l.ID(), "it hangs"); err != nil {
			f.Fatal(err)
		}
		got := next.Got()
		if got.Token() <= l.Token() {
			f.Errorf("token %d after %d", got.Token(), l.Token())
		}
		select {
		case <-l.Context().Done():
		case <-time.After(5 * time.Second):
			f.Fatal("the holder was not told")
		}
		if revoked := new(leasehold.RevokedError); !errors.As(context.Cause(l.Context()), &revoked) || revoked.Reason != "it hangs" {
			f.Errorf("the cause is %v", context.Cause(l.Context()))
		}
		redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrRevoked)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrRevoked)
		if err := operator.Revoke(f.Context(), "k", l.ID(), "it hangs"); err != nil {
			f.Error(err)
		}
		if err := got.Unlock(); err != nil {
			f.Error(err)
		}
		redistest.WantErr(f, operator.Revoke(f.Context(), "k", got.ID(), "r"), leasehold.ErrNoLease)
	})
}

// Without any message, Extend and the release of a young lock say that it was revoked.
func TestExtendSaysRevoked(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		l, err := m.Lock(f.Context(), "k")
		if err != nil {
			f.Fatal(err)
		}
		if err := m.Revoke(f.Context(), "k", l.ID(), "why"); err != nil {
			f.Fatal(err)
		}
		redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrRevoked)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrRevoked)
	})
}

// The first reply to the release of a lock that was revoked is lost, and no hint has come: the
// repeated leave finds nothing, which is no proof that the first one gave the lock back.
func TestUnlockWhoseFirstReplyIsLostTellsOfARevocation(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		m, w := f.open()
		operator, _ := f.open()
		l, kept := f.take(m, "k"), f.take(m, "kept")
		if err := operator.Revoke(f.Context(), "k", l.ID(), "a test"); err != nil {
			f.Fatal(err)
		}
		for _, c := range []struct {
			l    *mutex.Lock
			want error
		}{{l, leasehold.ErrRevoked}, {kept, nil}} {
			w.Patience = 10 * time.Millisecond
			release := w.StallReplies("leave")
			time.AfterFunc(11*time.Millisecond, release)
			if err := c.l.Unlock(); !errors.Is(err, c.want) {
				f.Errorf("Unlock of %s says %v; want %v", c.l.Key(), err, c.want)
			}
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
				if err != nil || len(state.Waiters) != 1 {
					f.Fatal(state, err)
				}
				w.CutOff("ask")
				time.AfterFunc(c.lost, w.Heal)
				if err := operator.Revoke(f.Context(), "k", state.Waiters[0].ID, "a test"); err != nil {
					f.Fatal(err)
				}
				time.AfterFunc(2*time.Second, func() { _ = held.Unlock() })
				<-waiter.Done
				if !errors.Is(waiter.Err, c.want) {
					f.Errorf("the revoked waiter ended with %v; want %v", waiter.Err, c.want)
				}
			})
		})
	}
}
