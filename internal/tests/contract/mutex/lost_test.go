package mutex

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/mutex"
)

// A retried lock must find itself, not "taken", and with the token that it got the first time.
func TestLockWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		m, other := f.openVia(p), f.openVia(p)
		unlock(f, f.take(m, "warm")) // the script is known from here on
		ran := redistest.Watch(p)
		for key, lock := range map[string]func(context.Context, string) (*mutex.Lock, error){"lock": m.Lock, "try": m.TryLock} {
			first := make(chan uint64, 1) // the token that the first reply has
			p.EatReply(func(cmd []string) bool {
				if !redistest.Runs(luascripts.PermitsEnter())(cmd) {
					return false
				}
				token, _ := f.RDB.Get(context.Background(), f.Part(key, "fence")).Uint64()
				first <- token
				return true
			}, 1)
			l := redistest.Must(lock(f.Context(), key))(f)
			issued, last := <-first, f.fence(key)
			redistest.CheckNow(f, l.Token() != 0 && l.Token() == issued && issued == last, "token %d, at first %d, last issued %d", l.Token(), issued, last)
			redistest.Require(f, ran(luascripts.PermitsEnter(), f.Part(key, "holders")), 2, "the server ran %d enters")
			redistest.WantErr(f, redistest.ErrorOf(other.TryLock(f.Context(), key)), leasehold.ErrBusy)
			unlock(f, l)
			unlock(f, f.take(other, key))
		}
	})
}

// What Redis no longer has, an Extend takes not back, whether somebody else has the key by then or not.
// The holder, which did not know yet, is told.
func TestExtendAfterTheEnd(t *testing.T) {
	some(t, func(f *fixture) {
		m, _ := f.open()
		other, _ := f.open()
		for _, taken := range []bool{false, true} {
			key := fmt.Sprint("deleted-", taken)
			l := f.take(m, key)
			f.RDB.Del(f.Context(), f.Part(key, "holders"))
			if taken {
				f.take(other, key)
			}
			redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrLost)
			redistest.Get(f, "the loss", l.Context().Done())
			redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrLost)
			f.wantHeld(key, taken)
		}
	})
}

// A holder that is cut off, or hears nothing more, is told before its lock ends in Redis, at whatever
// moment of its lease that begins.
func TestCutOffAtAnyMoment(t *testing.T) {
	bubble(t, func(f *fixture) {
		for _, term := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute} {
			for part := range 20 {
				for how, cut := range map[string]func(*harness.Wire){
					"cut": (*harness.Wire).Cut, "silent": func(w *harness.Wire) { w.Stall() },
				} {
					m, wire := f.open(ttl(term))
					key, after := fmt.Sprint(how, term, part), time.Duration(part)*term/13
					l := f.take(m, key)
					time.Sleep(after)
					cut(wire)
					<-l.Context().Done()
					redistest.CheckNow(f, len(f.Held(key)) == 1, "%s after %v of %v: told when the lock had ended", how, after, term)
					redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost)
					wire.Heal()
					redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
					harness.Close(f, m)
				}
			}
		}
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
