package scripts_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// P12: out of memory, what gives back and keeps works, hands over, and what
// takes is refused before it changed anything.
func TestCallsThatGiveBackNeedNoMemory(t *testing.T) {
	redistest.NeedServers(t)
	for _, v := range redistest.Installed() {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			srv := redistest.StartServer(t, v, "--maxmemory-policy", "noeviction")
			w := newWorld(t, srv.Client(), true)
			holder, waiter := w.lock(hereHandle), w.lock(hereHandle)
			w.enter(holder, life.Granted)
			w.enter(waiter, life.Queued)
			w.leave(w.lock(hereHandle), 0) // all scripts are known from here on
			w.renew(holder, time.Minute)
			w.ask(waiter)
			// A dead holder's permit, which a purge would take away.
			w.rdb.ZAdd(ctx, w.res.Part("holders"), redis.Z{Score: 1, Member: "dead"})
			redistest.WantErr(t, w.rdb.ConfigSet(ctx, "maxmemory", "1").Err())

			before := w.snapshot()
			for _, o := range []protocol.EnterOptions{{}, {Wait: true}, {Wait: true, MaxWaiters: 1}} {
				reply, err := w.tryEnter(w.lock(hereHandle), o)
				redistest.Check(t, !o.Wait || err != nil && strings.HasPrefix(err.Error(), "OOM"),
					"enter %+v answered %+v, %v; want OOM", o, reply, err)
				redistest.Expect(t, w.snapshot(), before, "a refused enter %+v changed\n%s\nto\n%s", o, before)
			}
			redistest.Expect(t, w.renew(holder, 2*time.Minute), 2*time.Minute, "renew left %v")
			got := w.ask(waiter).Waiters
			redistest.Check(t, got[0].Code == life.Queued, "the waiter stands as %d; want queued", got[0].Code)
			if got := w.leave(holder, 0); got.Code != life.Held || len(got.Grants) != 1 || got.Grants[0].Seq != waiter.Seq {
				t.Errorf("leave answered %+v; want the lock handed to the waiter", got)
			}
			if got := w.leave(waiter, w.now()+time.Second.Microseconds()); got.Code != life.Held {
				t.Errorf("leave answered %+v; want it given back", got)
			}
		})
	}
}

// snapshot is what the sets hold, as text.
func (w *world) snapshot() string {
	w.Helper()
	var all []string
	for _, part := range []string{"holders", "queue", "alive"} {
		members := redistest.Must(w.rdb.ZRange(context.Background(), w.res.Part(part), 0, -1).Result())(w)
		all = append(all, part+": "+strings.Join(members, " "))
	}
	return strings.Join(all, "\n")
}
