package redistest

import (
	"strings"
	"testing"
	"time"
)

func TestPairReplicates(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		primary, replica := StartPair(t, v)
		if p, r := primary.Role(), replica.Role(); p != "master" || r != "slave" {
			t.Fatalf("roles %q, %q", p, r)
		}
		rdb := primary.Client()
		if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if n, err := rdb.Wait(t.Context(), 1, 5*time.Second).Result(); err != nil || n != 1 {
			t.Fatalf("%d replicas confirmed, %v", n, err)
		}
		if got, err := replica.Client().Get(t.Context(), "k").Result(); err != nil || got != "v" {
			t.Fatalf("the replica has %q, %v", got, err)
		}
	})
}

func TestSentinelReplacesAKilledPrimary(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, v Version) {
		x := StartSentinel(t, v)
		rdb := x.FailoverClient()
		if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if n, err := rdb.Wait(t.Context(), 2, 5*time.Second).Result(); err != nil || n != 2 {
			t.Fatalf("%d replicas confirmed, %v", n, err)
		}
		old := x.Primary()
		old.Kill()
		now := x.Primary()
		if now.Addr() == old.Addr() {
			t.Fatal("the killed primary is the primary")
		}
		eventually(t, "the client doesn't find the new primary", func() bool {
			return rdb.Set(t.Context(), "k2", "v", 0).Err() == nil
		})
		if got, err := now.Client().Get(t.Context(), "k2").Result(); err != nil || got != "v" {
			t.Fatalf("the new primary has %q, %v", got, err)
		}
	})
}

func TestClusterReplacesAKilledPrimary(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, v Version) {
		c := StartCluster(t, v)
		rdb := c.Client()
		keys := []string{"a", "b", "c", "d", "e", "f"}
		served := map[string]bool{}
		for _, key := range keys {
			served[c.NodeFor(key).Addr()] = true
			if err := rdb.Set(t.Context(), key, "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if len(served) != 3 {
			t.Fatalf("the keys are on %d nodes", len(served))
		}
		old := c.NodeFor("a")
		replica := c.ReplicaOf(old)
		old.Kill()
		now := c.NodeFor("a")
		if now.Addr() != replica.Addr() {
			t.Fatalf("%s, replica of %s, was to take over: it is %s", replica.Addr(), old.Addr(), now.Addr())
		}
		eventually(t, "the client doesn't find the new primary", func() bool {
			rdb.ReloadState(t.Context()) // the node that it asks may not have heard yet
			return rdb.Set(t.Context(), "a", "w", 0).Err() == nil
		})
		old.Restart()
		eventually(t, "the old primary doesn't follow the new one", func() bool {
			return strings.Contains(old.info("replication"), "master_link_status:up")
		})
	})
}
