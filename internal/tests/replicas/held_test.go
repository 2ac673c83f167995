package replicas

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A renewal that replicas did not confirm moves no deadline: the lease ends at the deadline
// of the last one that they confirmed, though the primary has renewed it.
func TestUnconfirmedRenewalMovesNoDeadline(t *testing.T) {
	onNewest(t, func(t *testing.T, x *redistest.Replicated, newHandle maker) {
		const ttl = 1500 * time.Millisecond
		rdb := x.Primary.Client()
		h := newHandle(t, rdb, mutex.Config{Name: redistest.Name(t), TTL: ttl, Replicas: 2, ReplicaWait: 100 * time.Millisecond})
		l := granted(t, h, "k")
		renewed(t, l) // while they confirm, it is renewed
		x.Cut()
		time.Sleep(200 * time.Millisecond) // what was confirmed before the cut has arrived
		last := l.Deadline()
		holders := rdb.Keys(t.Context(), "leasehold:*holders").Val()[0]
		ends := func() int64 {
			all := rdb.ZRangeWithScores(t.Context(), holders, 0, 0).Val()
			if len(all) == 0 {
				return 0
			}
			return int64(all[0].Score)
		}
		before := ends()
		redistest.Eventually(t, "the primary to renew it", func() bool { return ends() > before })
		control := make(chan time.Time, 1) // a busy machine is late for any timer
		time.AfterFunc(time.Until(last), func() { control <- time.Now() })
		<-l.Context().Done()
		now := time.Now()
		redistest.Check(t, !now.Before(last) && now.Sub(<-control) <= 200*time.Millisecond, "it ended %v after its deadline", now.Sub(last))
		d := l.Deadline()
		redistest.Check(t, d.Equal(last), "its deadline moved by %v", d.Sub(last))
		redistest.WantErr(t, context.Cause(l.Context()), leasehold.ErrLost, redistest.Says("0 of 2 replicas confirmed it within 100ms"))
		redistest.WantErr(t, l.giveBack(), leasehold.ErrLost)
	})
}

// An Extend that replicas did not confirm is an error, and moves no deadline.
func TestUnconfirmedExtendMovesNoDeadline(t *testing.T) {
	onNewest(t, func(t *testing.T, x *redistest.Replicated, newHandle maker) {
		h := newHandle(t, x.Primary.Client(), mutex.Config{Name: redistest.Name(t), Replicas: 2, ReplicaWait: 50 * time.Millisecond})
		l := granted(t, h, "k")
		x.Cut()
		before := l.Deadline()
		redistest.WantErr(t, l.Extend(t.Context(), time.Hour), leasehold.ErrUnavailable, redistest.Says("0 of 2 replicas"))
		d := l.Deadline()
		redistest.Check(t, d.Equal(before), "its deadline moved by %v", d.Sub(before))
		x.Heal()
		redistest.Eventually(t, "an Extend once the replicas are back", func() bool { return l.Extend(t.Context(), time.Hour) == nil })
		d = l.Deadline()
		redistest.Check(t, time.Until(d) >= 58*time.Minute, "it lasts %v", time.Until(d))
		redistest.NoError(t, l.giveBack())
	})
}

// A server without memory refuses what takes: it still renews, for the marker is there.
func TestRenewalsWithoutMemory(t *testing.T) {
	onNewest(t, func(t *testing.T, x *redistest.Replicated, newHandle maker) {
		rdb := x.Primary.Client()
		h := newHandle(t, rdb, mutex.Config{Name: redistest.Name(t), TTL: 4 * time.Second, Replicas: 2, ReplicaWait: 200 * time.Millisecond})
		l := granted(t, h, "k")
		redistest.WantErr(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		defer rdb.ConfigSet(context.Background(), "maxmemory", "0")
		redistest.WantErr(t, redistest.ErrorOf(h.acquire(t.Context(), "other")), leasehold.ErrUnavailable)
		renewed(t, l)
		renewed(t, l)
		redistest.NoError(t, l.giveBack())
	})
}

// renewed waits until the deadline of a lease moves.
func renewed(t *testing.T, l lease) {
	t.Helper()
	before := l.Deadline()
	redistest.Eventually(t, "a renewal", func() bool {
		redistest.Require(t, context.Cause(l.Context()), nil, "it was lost: %v")
		return l.Deadline().After(before)
	})
}

// On a Cluster the replica of the key's own primary confirms, and no other node's.
func TestClusterConfirmsAtTheNodeOfTheKey(t *testing.T) {
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.String(), func(t *testing.T) {
			cluster := redistest.StartPatientCluster(t, v)
			name := redistest.Name(t)
			rdb := cluster.Client(func(o *redis.ClusterOptions) { o.ReadTimeout = 2 * time.Second })
			h := newMutex(t, rdb, mutex.Config{Name: name, Replicas: 1, ReplicaWait: 100 * time.Millisecond})
			holders := func(key string) string { return harness.Part("mtx", name, key, "holders") }
			sick := cluster.NodeFor(holders("k0"))
			for i := range 30 {
				redistest.NoError(t, granted(t, h, fmt.Sprint("k", i)).giveBack())
			}
			replica := cluster.ReplicaOf(sick)
			replica.Pause()
			defer replica.Resume()
			healthy := 0
			for i := range 30 {
				key := fmt.Sprint("k", i)
				if cluster.NodeFor(holders(key)).Addr() != sick.Addr() {
					redistest.Expect(t, granted(t, h, key).giveBack(), nil, "at a node whose replica confirms: %v")
					healthy++
					continue
				}
				redistest.WantErr(t, redistest.ErrorOf(h.acquire(t.Context(), key)), leasehold.ErrUnavailable, redistest.Says("0 of 1 replicas confirmed it within 100ms"))
			}
			redistest.Check(t, healthy != 0 && healthy != 30, "%d of 30 keys are at the healthy nodes", healthy)
		})
	}
}

// While the key's slot moves, and after it has, leases are taken and kept.
func TestClusterSlotMovesUnderConfirmedLeases(t *testing.T) {
	cluster := redistest.StartPatientCluster(t, redistest.Newest(t))
	name := redistest.Name(t)
	h := newMutex(t, cluster.Client(), mutex.Config{Name: name, TTL: 2 * time.Second, Replicas: 1})
	slot := harness.Part("mtx", name, "k", "holders")
	l := granted(t, h, "k")
	from := cluster.NodeFor(slot)
	to := cluster.Nodes[slices.IndexFunc(cluster.Nodes, func(node *redistest.Server) bool {
		return node.Addr() != from.Addr() && node.Role() == "master"
	})]
	move := cluster.BeginMove(slot, to)
	time.Sleep(20 * time.Millisecond)
	move.MoveKeys()
	renewed(t, l)
	renewed(t, l) // at the target, which does not own the slot yet
	move.Finish()
	renewed(t, l)
	renewed(t, l)
	redistest.NoError(t, l.giveBack())
	redistest.NoError(t, granted(t, h, "k").giveBack())
}
