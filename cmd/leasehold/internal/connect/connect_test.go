package connect

import (
	"strings"
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
				redistest.WantErr(t, node.Client().ACLSetUser(t.Context(), "nobody", "on", ">secret").Err())
			}
			for _, url := range []string{
				"redis://" + cluster.Addrs()[0],
				"redis://" + cluster.Addrs()[0] + "?protocol=2",
				"redis://nobody:secret@" + cluster.Addrs()[0],
				"redis://nobody:secret@" + cluster.Addrs()[0] + "?protocol=2",
			} {
				rdb := client(t, url)
				redistest.Check(t, isCluster(rdb), "%s: a %T", url, rdb)
			}
		})
	}
}

func TestSingleServersAreNoCluster(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		rdb := client(t, target.URL(t))
		redistest.Check(t, isCluster(rdb) == (target.Kind == redistest.KindCluster), "a %T", rdb)
	})
}

func client(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	rdb := redistest.Must(Options{URL: url}.Client(t.Context()))(t)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func isCluster(rdb redis.UniversalClient) bool {
	_, is := rdb.(*redis.ClusterClient)
	return is
}

// Nothing of a password is in an error, however little of the URL could be read.
func TestPasswordIsNeverShown(t *testing.T) {
	for _, password := range []string{
		"S3cr3tPass/S3cr3tPass", "S3cr3tPass?S3cr3tPass", "S3cr3tPass#S3cr3tPass", "S3cr3tPass@S3cr3tPass", "S3cr3tPass%S3cr3tPass", "S3cr3tPass:S3cr3tPass",
		"12/S3cr3tPass", "12?S3cr3tPass=1", "12#S3cr3tPass", "S3cr3tPass[", "S3cr3tPass ]S3cr3tPass", "S3cr3tPass\x7f", "1/2/S3cr3tPass", "S3cr3tPass\\",
	} {
		for _, form := range []string{
			"redis://default:%@127.0.0.1:1/0", "rediss://:%@h/x", "redis+cluster://u:%@h:1", "redis+sentinel://u:%@h:1/0?master_name=m", "unix://u:%@/tmp/x", "redi://u:%@h", "redis+x://u:%@h",
			"http://u:%@h", "u:%@h", "redis://u:%@h:port", "redis://u:%@h:1/db", "redis://u:%@h:1?nope=1", "redis+cluster://u:%@h:x",
		} {
			url := strings.Replace(form, "%", password, 1)
			u, err := Options{URL: url}.universal()
			redistest.Check(t, err == nil || !strings.Contains(err.Error(), "S3c"), "%q: %v", url, err)
			// Where it was read, no part of the password has become an address or a path.
			redistest.Check(t, err != nil || !strings.Contains(strings.Join(u.Addrs, " ")+u.MasterName, "S3c") && u.Password != "12",
				"%q: a part of the password was read as something else: %+v", url, u)
		}
	}
}
