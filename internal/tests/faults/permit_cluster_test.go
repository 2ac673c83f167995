package faults

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// One node of a Cluster is stopped for 8 s, with its replica: leases whose keys other nodes have are kept, and given
// back without a wait.
func TestLeasesOfHealthyNodesOutliveASickOne(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	c := redistest.StartPatientCluster(t, redistest.NeedServers(t)[0])
	s := newSite(t, harness.Permits, c.Client())
	h := s.semaphore(c.Client(), semaphore.Config{Limit: 1, TTL: 3 * time.Second})
	const leases = 100
	sick := c.NodeFor(s.part("holders"))
	var healthy []*semaphore.Lease
	for i := range leases {
		l := redistest.Must(h.Acquire(t.Context(), fmt.Sprint(i)))(t)
		if c.NodeFor(s.on(t, l.Key()).part("holders")) != sick {
			healthy = append(healthy, l)
		}
	}
	redistest.CheckNow(t, len(healthy) != 0 && len(healthy) != leases, "%d of %d leases are on healthy nodes", len(healthy), leases)
	for _, node := range []*redistest.Server{c.ReplicaOf(sick), sick} {
		node.Pause()
		defer node.Resume()
	}
	time.Sleep(8 * time.Second)
	for _, l := range healthy {
		redistest.Expect(t, context.Cause(l.Context()), nil, "a lease of a healthy node was lost: %v")
	}
	began := time.Now()
	for _, l := range healthy {
		redistest.Expect(t, l.Release(), nil, "release on a healthy node: %v")
	}
	redistest.AtMost(t, time.Since(began), harness.Slack, "releases on healthy nodes took %v")
}

// skewed starts a Cluster of two primaries, and sets the second's clock apart.
func skewed(t *testing.T, apart time.Duration) *redis.ClusterClient {
	t.Helper()
	v := redistest.NeedServers(t)[0]
	var nodes []*redistest.Server
	var clock *redistest.Clock
	for i := range 2 {
		srv, c := redistest.StartWithClock(t, v, "--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
		nodes, clock = append(nodes, srv), c
		redistest.WantErr(t, srv.Client().ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err())
	}
	clock.Shift(apart)
	host, port, err := net.SplitHostPort(nodes[1].Addr())
	redistest.WantErr(t, err)
	redistest.WantErr(t, nodes[0].Client().ClusterMeet(t.Context(), host, port).Err())
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr(), nodes[1].Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	for _, srv := range nodes {
		harness.Until(t, redistest.Soon, func() error {
			info, err := srv.Client().ClusterInfo(t.Context()).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:2") || !strings.Contains(info, "cluster_slots_ok:16384") {
				return fmt.Errorf("%v: %s", err, info)
			}
			return nil
		})
	}
	rdb.ReloadState(t.Context())
	return rdb
}

// The clocks of two nodes stand apart by more than an enter may be late: calls to either node are judged by its own
// clock, so that each acquisition is one call, and a waiter's Deadline is right.
func TestClocksOfTwoNodesStandApart(t *testing.T) {
	for _, apart := range []time.Duration{2 * time.Second, -8 * time.Second, 8 * time.Second} {
		t.Run(apart.String(), func(t *testing.T) {
			rdb := skewed(t, apart)
			s := newSite(t, harness.Permits, rdb)
			wire := &harness.Wire{}
			rdb.AddHook(wire)
			const ttl = 3 * time.Second
			h := s.semaphore(rdb, semaphore.Config{Limit: 1, TTL: ttl})
			keys := make([]string, 16)
			for i := range keys {
				keys[i] = fmt.Sprint(i)
				l, err := h.Acquire(t.Context(), keys[i]) // each node is heard
				redistest.CheckNow(t, err == nil && l.Release() == nil, "%v", err)
			}
			const rounds = 10
			before := wire.Sent("enter")
			for range rounds {
				for _, key := range keys {
					l := redistest.Must(h.Acquire(t.Context(), key))(t)
					left := time.Until(l.Deadline())
					redistest.CheckNow(t, left <= ttl && left >= ttl/2, "key %s: the Deadline is in %v; the TTL is %v", key, left, ttl)
					redistest.WantErr(t, l.Release())
				}
			}
			sent, want := wire.Sent("enter")-before, rounds*len(keys)
			redistest.Check(t, sent <= want+2, "%d enters for %d acquisitions", sent, want)
			for _, key := range keys {
				l := redistest.Must(h.Acquire(t.Context(), key))(t)
				at := s.on(t, key)
				waiter := at.acquiring(context.Background(), h)
				at.waitQueued(1)
				redistest.WantErr(t, l.Release())
				next := waiter.Got()
				redistest.Between(t, time.Until(next.Deadline()), ttl/2, ttl, "key %s: a waiter's Deadline is in %v", key)
				redistest.WantErr(t, next.Release())
			}
		})
	}
}
