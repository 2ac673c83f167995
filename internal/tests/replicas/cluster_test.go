package replicas

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

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
				_, err := h.acquire(t.Context(), key)
				redistest.WantErr(t, err, leasehold.ErrUnavailable, redistest.Says("0 of 1 replicas confirmed it within 100ms"))
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
	to := cluster.Nodes[0]
	for _, node := range cluster.Nodes {
		if node.Addr() != from.Addr() && node.Role() == "master" {
			to = node
		}
	}
	move := cluster.BeginMove(slot, to)
	time.Sleep(20 * time.Millisecond)
	move.MoveKeys()
	time.Sleep(20 * time.Millisecond)
	move.Finish()
	renewed(t, l)
	renewed(t, l)
	redistest.NoError(t, l.giveBack())
	redistest.NoError(t, granted(t, h, "k").giveBack())
}
