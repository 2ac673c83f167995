package scripts_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/totals"
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

// What a permit that is free costs the server: seven commands within the scripts to take it and give it back, and
// twelve in a family with a total. A semaphore without a total pays nothing for those that have one.
func TestCommandsOfAFreePair(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	rdb, stats := srv.Client(), srv.Client()
	client := redistest.Must(call.NewClient(rdb))(t)
	ctx := context.Background()
	family := keys.Family{Kind: keys.Semaphore, Name: "cost"}
	plain := redistest.Must(permits.Family{Family: family}.Resource("k"))(t)
	withTotal := redistest.Must(totals.NewFamily(family, 10, 0).Resource("k"))(t)
	for _, c := range []struct {
		name     string
		resource protocol.Resource
		most     int64
	}{{"without a total", plain, 7}, {"with a total", withTotal, 12}} {
		pair := func(seq uint64) {
			q := c.resource.Request(protocol.Terms{Handle: hereHandle, Seq: seq, Permits: 1, TTL: time.Minute, Limit: 5, Want: 1})
			for _, one := range []*call.Call{q.Enter(protocol.EnterOptions{Wait: true}), q.Leave(0)} {
				v, err := client.Do(ctx, one)
				redistest.CheckNow(t, err == nil && v[0] == 1, "%v, %v", v, err)
			}
		}
		pair(1) // teaches the scripts
		redistest.WantErr(t, stats.ConfigResetStat(ctx).Err())
		pair(2)
		n := int64(0)
		for name, calls := range redistest.Commandstats(t, stats) {
			if name != "evalsha" && name != "info" && !strings.HasPrefix(name, "config") {
				n += calls
			}
		}
		redistest.Check(t, n != 0 && n <= c.most, "%s a free pair takes %d commands; want %d at most", c.name, n, c.most)
	}
}
