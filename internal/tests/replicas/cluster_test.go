package replicas

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// On a Cluster the replica of the key's own primary confirms, and no other node's.
func TestClusterConfirmsAtTheNodeOfTheKey(t *testing.T) {
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.String(), func(t *testing.T) {
			cluster := redistest.StartPatientCluster(t, v)
			name := redistest.Name(t)
			rdb := cluster.Client(func(o *redis.ClusterOptions) { o.ReadTimeout = 2 * time.Second })
			h := newMutex(t, rdb, settings{name: name, replicas: 1, replicaWait: 100 * time.Millisecond})
			holders := func(key string) string { return harness.Part("mtx", name, key, "holders") }
			sick := cluster.NodeFor(holders("k0"))
			for i := range 30 {
				if err := granted(t, h, fmt.Sprint("k", i)).giveBack(); err != nil {
					t.Error(err)
				}
			}
			replica := cluster.ReplicaOf(sick)
			replica.Pause()
			defer replica.Resume()
			healthy := 0
			for i := range 30 {
				key := fmt.Sprint("k", i)
				if cluster.NodeFor(holders(key)).Addr() != sick.Addr() {
					if err := granted(t, h, key).giveBack(); err != nil {
						t.Errorf("at a node whose replica confirms: %v", err)
					}
					healthy++
					continue
				}
				_, err := h.acquire(t.Context(), key)
				redistest.WantErr(t, err, leasehold.ErrUnavailable)
				redistest.WantText(t, err, "0 of 1 replicas confirmed it within 100ms")
			}
			if healthy == 0 || healthy == 30 {
				t.Errorf("%d of 30 keys are at the healthy nodes", healthy)
			}
		})
	}
}

// While the key's slot moves, and after it has, leases are taken and kept.
func TestClusterSlotMovesUnderConfirmedLeases(t *testing.T) {
	cluster := redistest.StartPatientCluster(t, redistest.Newest(t))
	name := redistest.Name(t)
	h := newMutex(t, cluster.Client(), settings{name: name, ttl: 2 * time.Second, replicas: 1})
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
	if err := l.giveBack(); err != nil {
		t.Error(err)
	}
	if err := granted(t, h, "k").giveBack(); err != nil {
		t.Error(err)
	}
}
