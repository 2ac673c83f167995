package scripts_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func (w *world) fence() (token uint64) {
	w.Helper()
	return redistest.Must(w.rdb.Get(context.Background(), w.res.Part("fence")).Uint64())(w)
}

// The leave of a lock that served turns sets the fence to the last one's token before the
// lock is handed on, and to nothing where the lock was lost meanwhile.
func TestLeaveOfTurnsSetsTheFence(t *testing.T) {
	each(t, true, func(w *world) {
		first, waiter := w.lock(hereHandle), w.lock(thereHandle)
		last := w.enter(first, life.Granted).Token + 5_000_000
		w.enter(waiter, life.Queued)
		first.SetLastToken(last)
		r := w.leave(first, 0)
		redistest.CheckNow(w, r.Code == life.Held, "the lock was not held")
		handedOver := last + 1 // the clock is behind the last token
		redistest.Expect(w, w.fence(), handedOver, "the next owner's token is %d")
		if r := w.leave(first, 0); r.Code == life.Held || w.fence() != handedOver {
			w.Errorf("a second leave found the lock held: %v, and set the fence to %d", r.Code == life.Held, w.fence())
		}
		w.leave(waiter, 0)

		lost, owner := w.lock(hereHandle), w.lock(thereHandle)
		token := w.enter(lost, life.Granted).Token
		w.rdb.Del(context.Background(), w.res.Part("holders"))
		owned := w.enter(owner, life.Granted).Token
		lost.SetLastToken(token + 5_000_000)
		if r := w.leave(lost, 0); r.Code == life.Held || w.fence() != owned {
			w.Errorf("the leave of a lost lock set the fence of its next owner from %d to %d", owned, w.fence())
		}
	})
}

// The fence is never set back.
func TestLeaveOfTurnsNeverSetsTheFenceBack(t *testing.T) {
	each(t, true, func(w *world) {
		r := w.lock(hereHandle)
		token := w.enter(r, life.Granted).Token
		r.SetLastToken(token - 1)
		w.leave(r, 0)
		redistest.Expect(w, w.fence(), token, "the fence is %d after a grant")
	})
}

func (w *world) renewAndCount(r *request, ttl time.Duration) (time.Duration, protocol.Use) {
	w.Helper()
	v := redistest.Must(w.client.Do(context.Background(), r.Renew(protocol.RenewOptions{Term: ttl, HeldFor: time.Second, Counts: true})))(w)
	left := redistest.Must(r.ReadRenew(v))(w)
	return left.Term, left.Use
}

// A renewal that counts is a renewal, tells how many wait and how much is in use, and
// never brings a lease back.
func TestRenewAndCount(t *testing.T) {
	each(t, false, func(w *world) {
		r := w.request(hereHandle, 2, 3, time.Minute)
		w.enter(r, life.Granted)
		left, use := w.renewAndCount(r, time.Hour)
		redistest.Check(w, left >= 59*time.Minute && use == (protocol.Use{InUse: 2, Limit: 3}), "%v are left, and the use is %+v", left, use)
		for m, d := range w.holders() {
			redistest.Check(w, d >= 59*time.Minute, "%s has %v of an hour left", m, d)
		}
		if left, _ := w.renewAndCount(r, time.Minute); left < 59*time.Minute {
			w.Errorf("a shorter renewal left %v of an hour", left)
		}
		waiter := w.request(thereHandle, 2, 3, time.Minute)
		w.enter(waiter, life.Queued)
		w.rdb.Set(context.Background(), w.res.Part("limit"), 1, time.Hour)
		if _, use := w.renewAndCount(r, time.Hour); use != (protocol.Use{Waiting: 1, InUse: 2, Limit: 1}) {
			w.Errorf("the use is %+v", use)
		}
		w.rdb.Del(context.Background(), w.res.Part("holders"))
		if left, _ := w.renewAndCount(r, time.Hour); left != 0 || len(w.holders()) != 0 {
			w.Errorf("a lease whose key was deleted came back for %v: %v", left, w.holders())
		}
	})
	each(t, true, func(w *world) {
		r := w.lock(hereHandle)
		w.enter(r, life.Granted)
		if left, use := w.renewAndCount(r, time.Hour); left < 59*time.Minute || use != (protocol.Use{InUse: 1, Limit: 1}) {
			w.Errorf("of a lock %v are left, and the use is %+v", left, use)
		}
	})
}
