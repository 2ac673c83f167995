package scripts_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/setting"
)

// A copy of an enter that was granted registers no keeper: a recall may have come since, of which
// the process must still be told.
func TestCopyOfAnEnterRegistersNoKeeper(t *testing.T) {
	each(t, false, func(w *world) {
		ctx, keepers := w.Context(), w.res.Part("keepers")
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
		redistest.Check(w, len(held) == 1 && held[waiter.member] != 0, "%v hold it", held)
	})
}

// A holder whose lease has expired, and was granted to the next one since, gives back nothing: nobody else is let in.
func TestLateLeaveHandsOverNothing(t *testing.T) {
	each(t, true, func(w *world) {
		ctx, holders := w.Context(), w.res.FirstKey()
		late, next, gone, last := w.lock(hereHandle), w.lock(thereHandle), w.lock(thereHandle), w.lock(thereHandle)
		w.enter(late, life.Granted)
		w.enter(next, life.Queued)
		w.enter(gone, life.Queued)
		w.enter(last, life.Queued)
		expired := float64(w.now()/1000 - 1)
		redistest.WantErr(w, w.rdb.ZAdd(ctx, holders, redis.Z{Score: expired, Member: late.member}).Err())
		if reply := w.leave(gone, 0); len(reply.Grants) != 1 || reply.Grants[0].Seq != next.Seq {
			w.Fatalf("the waiter that left the queue was told of %+v; want a grant to %d", reply.Grants, next.Seq)
		}
		w.leave(late, 0)
		got := w.rdb.ZRange(ctx, holders, 0, -1).Val()
		redistest.Check(w, len(got) == 1 && got[0] == next.member, "holders are %q; want %q alone", got, next.member)
	})
}

// Of two settings the one with the higher number counts. One from before the clock went back, which is
// ahead of it now, does not count.
func TestLateSettingsUndoNothing(t *testing.T) {
	each(t, false, func(w *world) {
		stored := func() string { return w.rdb.Get(w.Context(), w.res.Part("limit")).Val() }
		set := func(what string, number int64, limit int, overtaken bool, then string) {
			w.Helper()
			v := redistest.Must(w.client.Do(w.Context(), w.res.Set(protocol.SetOptions{Handle: hereHandle, Number: number, Limit: limit})))(w)
			reply := redistest.Must(setting.Read(v))(w)
			redistest.Check(w, reply.Overtaken == overtaken && stored() == then, "%s: %+v, and the limit is %q; want %q", what, reply, stored(), then)
		}
		called := w.now()
		set("the first", called, 5, false, "5")
		set("one that was called before", called-1, 3, true, "5")
		// The clock goes back by a minute: what is left is ahead of it.
		w.rdb.ZAdd(w.Context(), w.res.Part("alive"), redis.Z{Member: "=", Score: float64(w.now()/1000 + 65_000)})
		set("one after the clock went back", w.now(), 8, false, "8")
	})
}

// An attempt that comes back, for its tombstone was lost, can be revoked again: it has one
// entry in the audit, and keeps the first reason.
func TestRevokedTwiceKeepsTheFirstReason(t *testing.T) {
	each(t, true, func(w *world) {
		r := w.lock(hereHandle)
		for _, reason := range []string{"first", "second"} {
			w.enter(r, life.Granted)
			v, err := w.client.Do(w.Context(), w.res.Resource.Revoke(r.member, r.ID(), reason))
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
