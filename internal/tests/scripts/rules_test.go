package scripts_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/setting"
)

// A renewal never brings a lease back: not after a leave, not after expiry
// though its member is still there, not after its key was deleted.
func TestRenewNeverRevives(t *testing.T) {
	each(t, false, func(w *world) {
		ctx, holders := context.Background(), w.res.Part("holders")
		other := w.request(thereHandle, 1, 9, time.Minute) // keeps the key
		w.enter(other, life.Granted)
		for name, n := range map[string]int{"one permit": 1, "three permits": 3} {
			left, expired := w.request(hereHandle, n, 9, time.Minute), w.request(hereHandle, n, 9, time.Minute)
			w.enter(left, life.Granted)
			w.leave(left, 0)
			w.enter(expired, life.Granted)
			for m := range w.holders() {
				if m != other.Member() {
					w.rdb.ZAddXX(ctx, holders, redis.Z{Score: float64(w.now()/1000 - 1), Member: m})
				}
			}
			for what, r := range map[string]*request{"released": left, "expired": expired} {
				redistest.Expect(w, w.renew(r, time.Minute), 0, "%s: a renewal of a %s lease left %v", name, what)
			}
			for m, d := range w.holders() {
				redistest.Check(w, m == other.Member() || d <= 0, "%s: %s came back for %v", name, m, d)
			}
			w.leave(expired, 0)
		}
		w.rdb.Del(ctx, holders)
		d := w.renew(other, time.Minute)
		redistest.Check(w, d == 0 && len(w.holders()) == 0, "a renewal after the key was deleted left %v and %v", d, w.holders())
	})
}

// A renewal never shortens, and reaches all permits of a request.
func TestRenewNeverShortens(t *testing.T) {
	each(t, false, func(w *world) {
		r := w.request(hereHandle, 3, 3, time.Second)
		w.enter(r, life.Granted)
		w.renew(r, time.Hour)
		redistest.AtLeast(w, w.renew(r, time.Minute), 59*time.Minute, "a shorter renewal left %v of an hour")
		for m, d := range w.holders() {
			redistest.Check(w, d >= 59*time.Minute, "%s has %v of an hour left", m, d)
		}
		redistest.AtLeast(w, w.rdb.PTTL(context.Background(), w.res.Part("holders")).Val(), 59*time.Minute, "the key expires in %v")
	})
}

// Tickets rise although the server's clock went back.
func TestTicketsRise(t *testing.T) {
	each(t, true, func(w *world) {
		holder, early, late := w.lock(hereHandle), w.lock(hereHandle), w.lock(hereHandle)
		w.enter(holder, life.Granted)
		w.enter(early, life.Queued)
		// As if the first waiter had come while the clock was an hour ahead.
		ahead := float64(w.now() + time.Hour.Microseconds())
		w.rdb.ZAddXX(context.Background(), w.res.Part("queue"), redis.Z{Score: ahead, Member: early.Member()})
		w.enter(late, life.Queued)
		grants := w.leave(holder, 0).Grants
		redistest.Check(w, len(grants) == 1 && grants[0].Seq == early.Seq, "granted %+v; want the first that came", grants)
	})
}

// A copy of an enter that was granted registers no keeper: a recall may have come since, of which
// the process must still be told.
func TestCopyOfAnEnterRegistersNoKeeper(t *testing.T) {
	each(t, false, func(w *world) {
		ctx, keepers := context.Background(), w.res.Part("keepers")
		r := w.request(hereHandle+"^", 1, 2, time.Minute)
		w.enter(r, life.Granted)
		redistest.Require(w, w.rdb.ZCard(ctx, keepers).Val(), 1, "%d keepers are registered")
		w.rdb.Del(ctx, keepers) // as a recall does, whose mark is over
		again := w.enter(r, life.Granted)
		redistest.Check(w, again.Contended, "the copy says that the lease may be kept")
		redistest.Expect(w, w.rdb.ZCard(ctx, keepers).Val(), 0, "a copy registered %d keepers; want none")
	})
}

// What another version may have left in the queue stops nobody.
func TestMemberOfAnotherForm(t *testing.T) {
	each(t, true, func(w *world) {
		holder, waiter := w.lock(hereHandle), w.lock(thereHandle)
		w.enter(holder, life.Granted)
		later := float64(w.now()/1000 + time.Minute.Milliseconds())
		w.rdb.ZAdd(w.Context(), w.res.Part("queue"), redis.Z{Score: 1, Member: "of another form"})
		w.rdb.ZAdd(w.Context(), w.res.Part("alive"), redis.Z{Score: later, Member: "of another form"})
		w.enter(waiter, life.Queued)
		w.leave(holder, 0)
		held := w.holders()
		redistest.Check(w, len(held) == 1 && held[waiter.Member()] != 0, "%v hold it", held)
	})
}

// A holder whose lease has expired, and was granted to the next one since, gives
// back nothing: nobody else is let in.
func TestLateLeaveHandsOverNothing(t *testing.T) {
	each(t, true, func(w *world) {
		ctx, holders := context.Background(), w.res.FirstKey()
		late, next, gone, last := w.lock(hereHandle), w.lock(thereHandle), w.lock(thereHandle), w.lock(thereHandle)
		w.enter(late, life.Granted)
		w.enter(next, life.Queued)
		w.enter(gone, life.Queued)
		w.enter(last, life.Queued)
		expired := float64(w.now()/1000 - 1)
		redistest.WantErr(w, w.rdb.ZAdd(ctx, holders, redis.Z{Score: expired, Member: late.Member()}).Err())
		if reply := w.leave(gone, 0); len(reply.Grants) != 1 || reply.Grants[0].Seq != next.Seq {
			w.Fatalf("the waiter that left the queue was told of %+v; want a grant to %d", reply.Grants, next.Seq)
		}
		w.leave(late, 0)
		got := w.rdb.ZRange(ctx, holders, 0, -1).Val()
		redistest.Check(w, len(got) == 1 && got[0] == next.Member(), "holders are %q; want %q alone", got, next.Member())
	})
}

// Of two settings the one with the higher number counts, of any handle, until 5 s after its call.
// A number ahead of the clock counts as much as the clock, and one from before the clock went
// back does not count.
func TestLateSettingsUndoNothing(t *testing.T) {
	each(t, false, func(w *world) {
		res, called := w.res.Resource, w.now()
		stored := func() string { return w.rdb.Get(w.Context(), w.res.Part("limit")).Val() }
		set := func(what, handle string, number int64, limit int, want setting.Reply, then string) {
			w.Helper()
			v := redistest.Must(w.client.Do(w.Context(), res.Set(protocol.SetOptions{Handle: handle, Number: number, Limit: limit})))(w)
			reply, err := setting.Read(v)
			if err != nil || reply.Stored != want.Stored || reply.Overtaken != want.Overtaken || stored() != then {
				w.Errorf("%s: %+v, %v, and the limit is %q; want %+v and %q", what, reply, err, stored(), want, then)
			}
		}
		counts, overtaken, void := setting.Reply{Stored: true}, setting.Reply{Overtaken: true}, setting.Reply{}
		set("the first", hereHandle, called-100, 5, counts, "5")
		set("sent again", hereHandle, called-100, 5, counts, "5")
		set("a later one", thereHandle, called-99, 3, counts, "3")
		set("a late copy of the first", hereHandle, called-100, 5, overtaken, "3")
		set("one that was called before and had no answer", hereHandle, called-4_000_000, 9, overtaken, "3")
		set("a tie", hereHandle, called-99, 4, counts, "4")
		set("one that comes too late", hereHandle, called-5_000_000, 7, void, "4")
		set("one far ahead of the clock", hereHandle, called+65_000_000, 7, void, "4")
		set("one ahead of the clock", hereHandle, called+1_500_000, 6, counts, "6")
		time.Sleep(2 * time.Millisecond)
		set("one that was called after it arrived", thereHandle, w.now(), 2, counts, "2")
		set("back to the default", thereHandle, w.now()+1, 0, counts, "")
		set("a copy of one before", hereHandle, called-99, 4, overtaken, "")
		ttl := w.rdb.PTTL(w.Context(), w.res.Part("alive")).Val()
		redistest.Check(w, ttl > 0 && ttl <= 5*time.Second+time.Millisecond, "what is left of the settings is kept for %v; want 5 s at most", ttl)
		// The clock goes back by a minute: what is left is ahead of it.
		w.rdb.ZAdd(w.Context(), w.res.Part("alive"), redis.Z{Member: "=", Score: float64(w.now()/1000 + 65_000)})
		set("one after the clock went back", hereHandle, w.now(), 8, counts, "8")
	})
}

// A waiter that was revoked gets its place back neither by a sign of life nor by a copy
// of its enter, and a lease that was revoked comes back by no copy of its enter.
func TestRevokedAttemptTakesNothingAgain(t *testing.T) {
	each(t, true, func(w *world) {
		revoke := func(r *request) {
			v, err := w.client.Do(w.Context(), w.res.Resource.Revoke(r.Member(), r.ID(), "it hangs"))
			redistest.CheckNow(w, err == nil && len(v) == 3 && v[0] == 1, "revoke: %v, %v", v, err)
		}
		holder, waiter := w.lock(hereHandle), w.lock(thereHandle)
		w.enter(holder, life.Granted)
		w.enter(waiter, life.Queued)
		revoke(waiter)
		w.ask(waiter)
		reply, err := w.tryEnter(waiter, protocol.EnterOptions{Wait: true})
		redistest.Check(w, isRevoked(err), "a copy of the enter was answered with %d, %v", reply.Code, err)
		redistest.Expect(w, w.rdb.ZCard(w.Context(), w.res.Part("queue")).Val(), 0, "%d wait")
		revoke(holder)
		reply, err = w.tryEnter(holder, protocol.EnterOptions{Wait: true})
		redistest.Check(w, isRevoked(err), "a copy of the holder's enter was answered with %d, %v", reply.Code, err)
		held := w.holders()
		redistest.Check(w, len(held) == 0, "%v hold it", held)
	})
}

func isRevoked(err error) bool {
	_, revoked := call.Revoked(err)
	return revoked
}

func newFlightWorld(t *testing.T, rdb redis.UniversalClient) *world {
	t.Helper()
	w := newWorld(t, rdb, true)
	res := redistest.Must(keys.Family{Kind: loads.Kind, Name: redistest.Name(t)}.Resource("k"))(t)
	w.res = newLoadsResource(res)
	return w
}

func eachFlight(t *testing.T, fn func(w *world)) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		fn(newFlightWorld(t, target.Client(t)))
	})
}

// A sign of life that finds its key gone (evicted) makes no key that never
// expires.
func TestAskAfterAliveWasLost(t *testing.T) {
	for name, each := range map[string]func(*testing.T, func(*world)){
		"permits": func(t *testing.T, fn func(*world)) { each(t, true, fn) },
		"flights": eachFlight,
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				token := w.enter(w.lock(thereHandle), life.Granted).Token
				waiter := w.lock(hereHandle)
				w.enter(waiter, life.Queued)
				if name == "flights" {
					waiter.await(w, token)
				}
				w.rdb.Del(w.Context(), w.res.Part("alive"))
				w.ask(waiter)
				d := w.rdb.PTTL(w.Context(), w.res.Part("alive")).Val()
				redistest.Check(w, d > 0, "alive expires in %v", d)
			})
		})
	}
}

// An attempt that comes back, for its tombstone was lost, can be revoked again: it has one
// entry in the audit, and keeps the first reason.
func TestRevokedTwiceKeepsTheFirstReason(t *testing.T) {
	each(t, true, func(w *world) {
		r := w.lock(hereHandle)
		for _, reason := range []string{"first", "second"} {
			w.enter(r, life.Granted)
			v, err := w.client.Do(w.Context(), w.res.Resource.Revoke(r.Member(), r.ID(), reason))
			redistest.CheckNow(w, err == nil && len(v) == 3 && v[0] == 1, "revoke: %v, %v", v, err)
			w.rdb.Del(w.Context(), w.res.Part("alive"))
		}
		held := w.holders()
		redistest.Check(w, len(held) == 0, "%v hold it", held)
		got := w.ask(r).Waiters[0]
		redistest.Check(w, got.Code == life.Revoked && got.Reason == "first", "it stands as %+v", got)
		redistest.Expect(w, w.rdb.XLen(w.Context(), w.res.Part("audit")).Val(), 1, "the audit has %d entries")
	})
}

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
