package mutex

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/mutex"
)

// Here are ways in which other libraries have lost locks, or their users' patience.

// A retried lock must find itself, not "taken", and with the token that it got
// the first time.
func TestLockWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		m, other := f.openVia(p), f.openVia(p)
		unlock(f, f.take(m, "warm")) // the script is known from here on
		ran := redistest.Watch(p)
		for lost := 1; lost <= 2; lost++ {
			for name, lock := range map[string]func(context.Context, string) (*mutex.Lock, error){
				"lock": m.Lock, "try": m.TryLock,
			} {
				key := fmt.Sprintf("%s-%d", name, lost)
				// The first reply is lost when the token in it is known.
				first := make(chan uint64, 1)
				p.EatReply(func(cmd []string) bool {
					if !redistest.Runs(luascripts.PermitsEnter())(cmd) {
						return false
					}
					token, _ := f.RDB.Get(context.Background(), f.Part(key, "fence")).Uint64()
					first <- token
					return true
				}, 1)
				if lost == 2 {
					defer p.EatReply(redistest.Runs(luascripts.PermitsEnter()), 2).Wait()
				}
				l := redistest.Must(lock(f.Context(), key))(f)
				issued := <-first
				redistest.CheckNow(f, l.Token() == issued, "token %d, at first %d", l.Token(), issued)
				redistest.Require(f, ran(luascripts.PermitsEnter(), f.Part(key, "holders")), lost+1, "the server ran %d enters")
				last := f.fence(key)
				redistest.CheckNow(f, l.Token() != 0 && l.Token() == last, "token %d, last issued %d", l.Token(), last)
				redistest.WantErr(f, redistest.ErrorOf(other.TryLock(f.Context(), key)), leasehold.ErrBusy)
				unlock(f, l)
				unlock(f, f.take(other, key))
			}
		}
	})
}

// What has ended stays ended: an Extend or a renewal that comes late takes
// nothing back, whether somebody holds the key by then, did, or never will.
func TestExtendAfterTheEnd(t *testing.T) {
	some(t, func(f *fixture) {
		m, wire := f.open(ttl(time.Second))
		other, _ := f.open()
		third, _ := f.open()

		l := f.take(m, "expired")
		wire.Cut()
		redistest.Get(f, "the loss", l.Context().Done())
		redistest.Eventually(f, "the expiry", func() bool { return len(f.Held("expired")) == 0 })
		wire.Heal()
		next := f.take(other, "expired")
		held := fmt.Sprint(f.Held("expired"))
		redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrLost)
		now := fmt.Sprint(f.Held("expired"))
		redistest.CheckNow(f, now == held, "held as %s, before as %s", now, held)
		unlock(f, next)
		redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrLost)
		f.wantHeld("expired", false)

		// The holder doesn't know yet: only Redis can refuse.
		for _, taken := range []bool{false, true} {
			key := fmt.Sprint("deleted-", taken)
			l := f.take(other, key)
			f.RDB.Del(f.Context(), f.Part(key, "holders"))
			if taken {
				f.take(third, key)
			}
			redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrLost)
			redistest.Get(f, "the loss", l.Context().Done())
			f.wantHeld(key, taken)
		}
	})
}

// A holder that is cut off is told before its lock ends in Redis, however soon
// after a renewal it was cut. The machine may be late in waking the test, not
// a dozen times.
func TestCutOffIsToldBeforeTheExpiry(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		m := f.openVia(p, ttl(600*time.Millisecond))
		f.Cleanup(p.Heal) // before the handle is closed
		var late time.Duration
		for round := range 12 {
			key := fmt.Sprint("k", round)
			l := f.take(m, key)
			told := make(chan time.Time, 1)
			context.AfterFunc(l.Context(), func() { told <- time.Now() })
			time.Sleep(time.Duration(round%4) * 150 * time.Millisecond)
			p.Cut(true, true)
			var ends float64
			var at time.Time
			for at.IsZero() {
				if score, err := f.RDB.ZScore(f.Context(), f.Part(key, "holders"), firstOf(f.Held(key))).Result(); err == nil {
					ends = max(ends, score)
				}
				select {
				case at = <-told:
				case <-time.After(5 * time.Millisecond):
				}
			}
			p.Heal()
			redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost)
			redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
			if late = at.Sub(time.UnixMilli(int64(ends))); late < 0 {
				return
			}
		}
		f.Fatalf("told %v after the end in Redis", late)
	})
}

func firstOf(m map[string]float64) string {
	for k := range m {
		return k
	}
	return ""
}

// The same by an exact clock, for a cut at every moment of the lease.
func TestCutOffAtAnyMoment(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		for _, term := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute} {
			for part := range 20 {
				m, wire := f.open(ttl(term))
				key := fmt.Sprint(term, part)
				l := f.take(m, key)
				time.Sleep(time.Duration(part) * term / 13)
				wire.Cut()
				<-l.Context().Done()
				redistest.CheckNow(f, len(f.Held(key)) == 1, "cut after %v of %v: told when the lock had ended", time.Duration(part)*term/13, term)
				wire.Heal()
				redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
				harness.Close(f, m)
			}
		}
	})
}

// A renewal that was sent before the unlock and arrives after it renews nothing:
// neither a lock that nobody holds nor the next owner's.
func TestRenewalArrivesAfterTheRelease(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		m := f.openVia(p, ttl(3*time.Second))
		other, _ := f.open()
		warm := f.take(m, "warm")
		redistest.WantErr(f, warm.Extend(f.Context(), time.Minute))
		unlock(f, warm)
		ran := redistest.Watch(p)
		for _, taken := range []bool{false, true} {
			key := fmt.Sprint("taken-", taken)
			renewal := p.HoldRequest(func(cmd []string) bool {
				return redistest.Runs(luascripts.PermitsRenew())(cmd) && cmd[3] == f.Part(key, "holders")
			}, 1)
			defer renewal.Release()
			l := f.take(m, key)
			renewal.Wait()
			unlock(f, l)
			f.wantHeld(key, false)
			if taken {
				l = f.take(other, key)
			}
			before := fmt.Sprint(f.Held(key))
			renewal.Release()
			redistest.Eventually(f, "the late renewal", func() bool { return ran(luascripts.PermitsRenew(), f.Part(key, "holders")) > 0 })
			after := fmt.Sprint(f.Held(key))
			redistest.CheckNow(f, after == before, "held as %s, before as %s", after, before)
			if taken {
				unlock(f, l)
			}
		}
	})
}
