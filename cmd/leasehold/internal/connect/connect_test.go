package connect

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The URL of one node is enough for a Cluster, in either protocol, and for a user with no
// rights at all: what the client asks needs none.
func TestOneNodeIsEnoughForACluster(t *testing.T) {
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.String(), func(t *testing.T) {
			cluster := redistest.SharedCluster(t, v)
			for _, node := range cluster.Nodes {
				if err := node.Client().Do(t.Context(), "acl", "setuser", "nobody", "on", ">secret").Err(); err != nil {
					t.Fatal(err)
				}
			}
			for _, url := range []string{
				"redis://" + cluster.Addrs()[0],
				"redis://" + cluster.Addrs()[0] + "?protocol=2",
				"redis://nobody:secret@" + cluster.Addrs()[0],
				"redis://nobody:secret@" + cluster.Addrs()[0] + "?protocol=2",
			} {
				if rdb := client(t, url); !isCluster(rdb) {
					t.Errorf("%s: a %T", url, rdb)
				}
			}
		})
	}
}

func TestSingleServersAreNoCluster(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		if rdb := client(t, target.URL(t)); isCluster(rdb) != (target.Kind == redistest.KindCluster) {
			t.Errorf("a %T", rdb)
		}
	})
}

func client(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	rdb, err := Options{URL: url}.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func isCluster(rdb redis.UniversalClient) bool {
	_, is := rdb.(*redis.ClusterClient)
	return is
}
