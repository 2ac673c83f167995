package faults

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// Values that somebody's hand may set a fence to. Above the spent ones there is no greater
// token that numbers of Lua can tell from its neighbours; the others are no token.
var (
	spentFences = []string{
		"9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775807", "1e300", "inf", "1e999",
		strings.Repeat("9", 200),
	}
	otherFences = []string{"nan", "-nan", "text", "", "-1", "-9007199254740993", "-inf", "-1e300", "1e3", "0.5", "4000000000000000.5", "9007199254740990"}
)

// wantSpent fails the test unless err says that no token is left, and names the key and the value.
func wantSpent(tb testing.TB, err error, key, value string) {
	tb.Helper()
	redistest.WantErr(tb, err, leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy), redistest.Says(key, value[:min(20, len(value))]))
}

// Somebody sets the fence by hand. Tokens rise, or the call ends with an error that names the
// key and the value, and leaves the value as it was.
func TestFenceSetByHand(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		s := newSite(t, harness.Locks, target.Client(t))
		h, other := s.mutex(target.Client(t), mutex.Config{}), s.mutex(target.Client(t), mutex.Config{})
		fence := s.part("fence")
		set := func(value string) { redistest.WantErr(t, s.RDB.Set(t.Context(), fence, value, 0).Err()) }
		for _, value := range spentFences {
			if target.Kind == redistest.KindMini && (len(value) > 19 || strings.ContainsAny(value, "ei")) {
				continue // its Lua does not read these as numbers
			}
			set(value)
			for range 2 {
				began := time.Now()
				l, err := h.Lock(t.Context(), s.key)
				redistest.CheckNow(t, err != nil, "lock with %.20q: %v", value, l)
				wantSpent(t, err, fence, value)
				redistest.AtMost(t, time.Since(began), redistest.Soon, "lock with %.20q: told after %v", value)
				_, err = h.TryLock(t.Context(), s.key)
				wantSpent(t, err, fence, value)
				redistest.Expect(t, s.RDB.Get(t.Context(), fence).Val(), value, "the fence %.20q is now %.40q", value)
				ttl := s.RDB.PTTL(t.Context(), fence).Val()
				redistest.Check(t, ttl > 0, "the fence %.20q has no expiry: %v", value, ttl)
			}
			held, queued := s.inUse(), s.queued()
			redistest.Check(t, held == 0 && queued == 0, "with %.20q: %d held, %d wait", value, held, queued)
		}
		for _, value := range otherFences {
			set(value)
			last := uint64(0)
			if n, err := strconv.ParseFloat(value, 64); err == nil && n > 1 && n < math.MaxInt64 {
				last = uint64(n)
			}
			rises := func(l *mutex.Lock) {
				t.Helper()
				redistest.Check(t, l.Token() > last && l.Token() < 1<<53, "with %q: token %d after %d", value, l.Token(), last)
				last = l.Token()
				redistest.Expect(t, s.RDB.Get(t.Context(), fence).Val(), strconv.FormatUint(last, 10), "with %q: the fence is %s", value)
			}
			l := redistest.Must(h.Lock(t.Context(), s.key))(t)
			rises(l)
			if last < 1<<53-1 { // not the last token that there is
				next := s.locking(other) // is told by a message
				s.waitQueued(1)
				redistest.WantErr(t, l.Unlock())
				l = next.Got()
				rises(l)
			}
			redistest.WantErr(t, l.Unlock())
		}
	})
}

// The fence is spent while a lock is held and others wait for it, of the holder's process and of another one. The
// holder keeps the lock and gives it back. The waiters are told why they get no lock, and leave nothing behind.
func TestFenceIsSpentUnderALock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		for _, how := range []string{"unlock", "revoke", "expiry"} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, harness.Locks, target.Client(t))
				h := s.mutex(target.Client(t), mutex.Config{TTL: 2 * time.Second})
				l := redistest.Must(h.Lock(t.Context(), s.key))(t)
				fence, value := s.part("fence"), "9007199254740992"
				waiters := []*harness.Call[*mutex.Lock]{s.locking(h)}
				s.waitQueued(1)
				waiters = append(waiters, s.locking(s.mutex(target.Client(t), mutex.Config{})))
				s.waitQueued(2)
				redistest.WantErr(t, s.RDB.Set(t.Context(), fence, value, 0).Err())
				switch how {
				case "unlock":
					redistest.Expect(t, l.Unlock(), nil, "unlock: %v")
				case "revoke":
					redistest.Expect(t, h.Revoke(t.Context(), s.key, l.ID(), "test"), nil, "revoke: %v")
				case "expiry":
					s.RDB.Del(t.Context(), s.part("holders"))
				}
				for _, w := range waiters {
					wantSpent(t, w.Failed(), fence, value)
				}
				s.waitQueued(0)
				harness.WaitCount(t, "holders", 0, s.inUse)
				redistest.Expect(t, s.RDB.Get(t.Context(), fence).Val(), value, "the fence is now %q")
				// Its deletion mends it.
				s.RDB.Del(context.Background(), fence)
				s.free(5 * time.Second)
			})
		}
	})
}
