package scripts_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
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
	"github.com/leasehold-go/leasehold/luascripts"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// world is an engine, and the keys of one resource of it.
type world struct {
	*testing.T
	rdb    redis.UniversalClient
	client *call.Client
	res    *resource
	seq    uint64
}

// Two handles, as managers name theirs: 22 characters.
const (
	hereHandle  = "hhhhhhhhhhhhhhhhhhhhhh"
	thereHandle = "tttttttttttttttttttttt"
)

func newWorld(t *testing.T, rdb redis.UniversalClient, fenced bool) *world {
	t.Helper()
	client := redistest.Must(call.NewClient(rdb))(t)
	return &world{T: t, rdb: rdb, client: client, res: permitsNamed(t, redistest.Name(t), fenced)}
}

func each(t *testing.T, fenced bool, fn func(w *world)) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		fn(newWorld(t, clientOf(t, target), fenced))
	})
}

// clientOf waits for its answers: they may take long on a busy machine. So the clock of an embedded server stands still.
func clientOf(t *testing.T, target redistest.Target) redis.UniversalClient {
	if target.Mini != nil {
		target.Mini.SetTime(time.Now())
	}
	return target.Client(t, func(o *redis.UniversalOptions) { o.ReadTimeout = time.Minute })
}

// request is a new attempt of a handle.
func (w *world) request(handle string, permits, limit int, ttl time.Duration) *request {
	w.seq++
	return w.res.attempt(handle, w.seq, permits, ttl, limit)
}

func (w *world) lock(handle string) *request { return w.request(handle, 1, 1, time.Minute) }

func (w *world) tryEnter(r *request, o protocol.EnterOptions) (protocol.Reply, error) {
	w.Helper()
	one := r.Enter(o)
	v, err := w.client.Do(context.Background(), one)
	if err != nil {
		return protocol.Reply{}, err
	}
	return redistest.Must(r.ReadEnter(one, v))(w), nil
}

// enter queues where nothing is free, and fails the test unless it is answered as wanted.
func (w *world) enter(r *request, want life.Code) protocol.Reply {
	w.Helper()
	reply := redistest.Must(w.tryEnter(r, protocol.EnterOptions{Wait: true}))(w)
	redistest.Require(w, reply.Code, want, "enter answered %d")
	return reply
}

func (w *world) leave(r *request, void int64) protocol.Reply {
	w.Helper()
	return redistest.Must(r.ReadLeave(redistest.Must(w.client.Do(context.Background(), r.Leave(void, false)))(w)))(w)
}

func (w *world) ask(rs ...*request) protocol.Reply {
	w.Helper()
	one := w.res.Ask(plain(rs))
	v := redistest.Must(w.client.Do(context.Background(), one))(w)
	return redistest.Must(w.res.ReadAsk(one, v, plain(rs)))(w)
}

// now is the server's clock in µs.
func (w *world) now() int64 {
	w.Helper()
	return redistest.Must(w.rdb.Time(context.Background()).Result())(w).UnixMicro()
}

// holders are the members in holders with their remaining terms.
func (w *world) holders() map[string]time.Duration {
	w.Helper()
	all := redistest.Must(w.rdb.ZRangeWithScores(context.Background(), w.res.Part("holders"), 0, -1).Result())(w)
	now, m := w.now()/1000, map[string]time.Duration{}
	for _, z := range all {
		m[z.Member.(string)] = time.Duration(int64(math.Ceil(z.Score))-now) * time.Millisecond
	}
	return m
}

// signs makes waiters alive until left from now, so that a slow machine makes none of them overdue, or dead.
func (w *world) signs(left time.Duration, waiters ...*request) {
	w.Helper()
	at := float64(w.now()/1000 + left.Milliseconds())
	all := make([]redis.Z, len(waiters))
	for i, r := range waiters {
		all[i] = redis.Z{Score: at, Member: r.member}
	}
	redistest.WantErr(w, w.rdb.ZAdd(w.Context(), w.res.Part("alive"), all...).Err())
}

// P8: ask < probation < alive, as the scripts have them.
func TestIntervalsOfWaitersFitEachOther(t *testing.T) {
	ask, probation, alive := life.AskEvery, constant(t, "PROBATION"), constant(t, "ALIVE")
	overdue := alive - constant(t, "OVERDUE")
	redistest.Check(t, ask < probation && probation < alive && ask < overdue && overdue <= probation,
		"ask %v, probation %v, overdue %v, alive %v; want them to rise in that order", ask, probation, overdue, alive)
}

// overdue is how long a waiter is still alive whose sign of life is too old for a grant.
const overdue = 2 * time.Second

// deadQueue is a lock that is held, and behind it so many waiters of one process
// whose sign of life is overdue, and a living one.
func (w *world) deadQueue(n int) (holder, living *request, dead []*request) {
	w.Helper()
	holder = w.lock(hereHandle)
	w.enter(holder, life.Granted)
	now := w.now()
	queue := make([]redis.Z, n)
	for i := range n {
		r := w.lock(thereHandle)
		dead = append(dead, r)
		queue[i] = redis.Z{Score: float64(now - int64(n-i)), Member: r.member}
	}
	redistest.WantErr(w, w.rdb.ZAdd(w.Context(), w.res.Part("queue"), queue...).Err())
	w.signs(overdue, dead...)
	living = w.lock(hereHandle)
	redistest.Must(w.tryEnter(living, protocol.EnterOptions{Wait: true}))(w)
	return holder, living, dead
}

// A call looks at no more overdue waiters than its bound, says that there is more,
// and sent again goes on with those that it has not looked at yet.
func TestOverdueWaitersAreParkedOnce(t *testing.T) {
	each(t, true, func(w *world) {
		const n = 1000
		batch := int(number(t, "BATCH"))
		parked := func() int64 {
			return w.rdb.ZCount(w.Context(), w.res.Part("queue"), strconv.FormatInt(number(t, "PARKED"), 10), "+inf").Val()
		}
		holder, living, dead := w.deadQueue(n) // its enter is the first call
		got := parked()
		redistest.CheckNow(t, got == int64(batch), "an enter parked %d; want %d", got, batch)
		for calls := 1; ; calls++ {
			before := parked()
			w.signs(overdue, dead...)
			w.signs(constant(t, "ALIVE"), living)
			reply := w.leave(holder, 0)
			if len(reply.Grants) == 1 && reply.Grants[0].Seq == living.Seq {
				redistest.Check(t, !reply.More, "a leave that handed the lock on says that there is more")
				redistest.Expect(t, calls, n/batch-1, "%d leaves")
				break
			}
			got := parked() - before
			redistest.CheckNow(t, got == int64(batch) && reply.More && len(reply.Grants) == 0,
				"leave %d parked %d, more %v, granted %v; want %d parked and more", calls, got, reply.More, reply.Grants, batch)
		}
	})
}

// A call grants no more than its bound, and says that there is more.
func TestGrantsOfOneCallAreBounded(t *testing.T) {
	each(t, false, func(w *world) {
		most := int(number(t, "GRANTS"))
		full := w.request(hereHandle, 2*most+5, 2*most+5, time.Minute)
		w.enter(full, life.Granted)
		var waiting []*request
		for range 2*most + 5 {
			waiting = append(waiting, w.request(hereHandle, 1, 2*most+5, time.Minute))
			w.enter(waiting[len(waiting)-1], life.Queued)
			w.signs(constant(t, "ALIVE"), waiting...) // also where all of them take longer
		}
		for _, want := range []int{most, most, 5} {
			w.signs(constant(t, "ALIVE"), waiting...)
			reply := w.leave(full, 0)
			waiting = waiting[min(want, len(waiting)):] // they hold
			redistest.Check(t, len(reply.Grants) == want && reply.More == (want == most),
				"a leave granted %d, more %v; want %d", len(reply.Grants), reply.More, want)
		}
	})
}

// An owner leaves late: its lease has expired, and the leave of a waiter has handed the lock on. The owner hands on nothing.
func TestLateLeaveBesideTheNextHolder(t *testing.T) {
	each(t, true, func(w *world) {
		late, leaver, next, waiter := w.lock(hereHandle), w.lock(thereHandle), w.lock(thereHandle), w.lock(thereHandle)
		w.enter(late, life.Granted)
		for _, r := range []*request{leaver, next, waiter} {
			w.enter(r, life.Queued)
		}
		w.signs(time.Minute, leaver, next, waiter)
		w.rdb.ZAdd(w.Context(), w.res.Part("holders"), redis.Z{Score: float64(w.now()/1000 - 1), Member: late.member})
		w.leave(leaver, 0)
		w.leave(late, 0)
		held := w.holders()
		redistest.Check(w, len(held) == 1 && held[next.member] != 0, "%v hold it", held)
	})
}

// A newcomer's place is behind every waiter, parked ones included, though the clock went back.
func TestTicketIsBehindParkedWaiters(t *testing.T) {
	each(t, true, func(w *world) {
		w.enter(w.lock(hereHandle), life.Granted)
		queue, parked := w.res.Part("queue"), number(t, "PARKED")
		late, ahead := w.lock(thereHandle), w.now()+time.Hour.Microseconds()
		w.enter(late, life.Queued)
		w.rdb.ZAdd(w.Context(), queue, redis.Z{Score: float64(ahead + parked), Member: late.member})
		for i := range int64(2) {
			r := w.lock(hereHandle)
			w.enter(r, life.Queued)
			redistest.Expect(t, int64(w.rdb.ZScore(w.Context(), queue, r.member).Val()), ahead+1+i, "its ticket is %d")
		}
	})
}

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

// The server's clock went back by an hour after a recall. Its mark does not keep leases from being kept for that long,
// and the next request that finds no room recalls them.
func TestMarkOfARecallBeforeTheClockWentBack(t *testing.T) {
	each(t, false, func(w *world) {
		ctx, keepers, alive := w.Context(), w.res.Part("keepers"), w.res.Part("alive")
		w.rdb.ZAdd(ctx, alive, redis.Z{Score: float64(w.now()/1000 + time.Hour.Milliseconds()), Member: "^"})
		r := w.request(hereHandle+"^", 1, 1, time.Minute)
		redistest.Check(w, !w.enter(r, life.Granted).Contended, "the enter says that the lease must not be kept")
		v, err := w.client.Do(ctx, r.Renew(protocol.RenewOptions{Term: time.Minute, Counts: true, Keeps: true}))
		redistest.Check(w, err == nil && len(v) == 5 && v[4] == 0, "the renewal was answered with %v, %v", v, err)
		w.enter(w.request(thereHandle, 1, 1, time.Minute), life.Queued)
		mark := int64(w.rdb.ZScore(ctx, alive, "^").Val()) - w.now()/1000
		redistest.Check(w, mark <= 100 && w.rdb.Exists(ctx, keepers).Val() == 0, "no recall: the mark stands for %d ms", mark)
	})
}

// Keys that are seldom needed are another program's, and another version has left something in the queue. A waiter keeps
// its place and is served, and nobody is told that it was not called for: not the process that asks for one waiter that is
// there and for one that is not.
func TestForeignKeysBesideALease(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprint("fenced=", fenced), func(t *testing.T) {
			each(t, fenced, func(w *world) {
				for _, part := range []string{"keepers", "revoked"} {
					w.rdb.Set(w.Context(), w.res.Part(part), "another program's", 0)
				}
				for part, score := range map[string]float64{"queue": 1, "alive": float64(w.now()/1000 + time.Minute.Milliseconds())} {
					w.rdb.ZAdd(w.Context(), w.res.Part(part), redis.Z{Score: score, Member: "of another form"})
				}
				holder, waiter, unknown := w.lock(hereHandle), w.lock(thereHandle), w.lock(thereHandle)
				w.enter(holder, life.Granted)
				w.enter(waiter, life.Queued)
				reply := w.ask(waiter, unknown)
				redistest.Check(w, reply.Waiters[0].Code == life.Queued && reply.Waiters[1].Code == life.Gone, "the ask says %+v", reply.Waiters)
				until := w.now() + time.Minute.Microseconds()
				redistest.Expect(w, w.leave(unknown, until).Code, life.Gone, "the leave of what is not there says %d")
				late := redistest.Must(w.tryEnter(unknown, protocol.EnterOptions{Wait: true}))(w)
				redistest.Expect(w, late.Code, life.GivenUp, "its late enter is answered with %d")
				w.leave(holder, 0)
				held := w.holders()
				redistest.Check(w, len(held) == 1 && held[waiter.member] != 0, "%v hold it", held)
			})
		})
	}
}

// A server without memory refuses no renewal of a kept lease, also one that moves no expiry, none of a vote, no
// vote that is given back to an earlier ticket, and no call that goes on where another one stopped.
func TestRenewalsAndYieldsNeedNoMemory(t *testing.T) {
	w := newWorld(t, redistest.StartServer(t, redistest.Newest(t)).Client(), false)
	kept := w.request(hereHandle+"^", 1, 2, time.Minute)
	w.enter(kept, life.Granted)
	quorum := redistest.Must(keys.Family{Kind: keys.Quorum, Name: redistest.Name(t)}.Resource("k"))(t)
	run := func(text string, parts []string, args ...any) ([]any, error) {
		var names []string
		for _, part := range parts {
			names = append(names, quorum.Part(part))
		}
		return redis.NewScript(text).Run(t.Context(), w.rdb, names, args...).Slice()
	}
	all := []string{"holders", "queue", "alive", "fence", "born"}
	look := redistest.Must(run(luascripts.QuorumLook(), all[4:], 0, 1, 60_000, 0, 0))(t)
	redistest.Must(run(luascripts.QuorumLook(), all[4:], look[2], 0, 60_000, 0, 1))(t)
	later, earlier := thereHandle+".1.1.60000.1.2000.1", hereHandle+".1.1.60000.1.1000.1"
	for _, member := range []string{later, earlier} {
		redistest.Must(run(luascripts.QuorumEnter(), all, member, 0, 60_000, 0, 60_000, "wait", 0, 0, 0))(t)
	}
	shared := redistest.Must(totals.NewFamily(keys.Family{Kind: keys.Semaphore, Name: redistest.Name(t)}, 5, 0).Resource("k"))(t)
	taken := shared.Request(protocol.Terms{Handle: hereHandle, Seq: 1, Permits: 1, TTL: time.Minute, Limit: 5, Want: 1})
	redistest.Must(w.client.Do(t.Context(), taken.Enter(protocol.EnterOptions{})))(t)
	w.rdb.Del(t.Context(), keys.Beside(shared.FirstKey(), "places"))

	redistest.WantErr(t, w.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	v, err := w.client.Do(t.Context(), kept.Renew(protocol.RenewOptions{Term: time.Millisecond, Counts: true, Keeps: true}))
	redistest.Check(t, err == nil && v[0] > 0, "the renewal was answered with %v, %v", v, err)
	_, err = w.client.Do(t.Context(), shared.GoOn(hereHandle))
	redistest.WantErr(t, err)
	raised, err := run(luascripts.QuorumEnter(), all, later, 0, 60_000, 0, 1, "renew", int64(4e15), 0, 1)
	redistest.Check(t, err == nil && raised[3] == any(int64(4e15)), "a renewal that raises the fence was answered with %v, %v", raised, err)
	yielded, err := run(luascripts.QuorumYield(), all, later, 0, 60_000, math.MaxInt64)
	redistest.Check(t, err == nil && yielded[0] == any(int64(2)), "the yield was answered with %v, %v", yielded, err)
	redistest.Expect(t, w.rdb.ZRange(t.Context(), quorum.Part("holders"), 0, -1).Val()[0], earlier, "%s has the vote")
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
			for _, one := range []*call.Call{q.Enter(protocol.EnterOptions{Wait: true}), q.Leave(0, false)} {
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
