package redistest

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestMatrixReachesItsTargets(t *testing.T) {
	kinds := map[Kind]int{}
	Matrix(t, func(t *testing.T, target Target) {
		kinds[target.Kind]++
		rdb, admin := target.Client(t), target.Admin(t)
		key := Name(t)
		WantErr(t, admin.Set(t.Context(), key, "v", 0).Err())
		if target.Kind != KindTLS {
			Require(t, Must(rdb.Get(t.Context(), key).Result())(t), "v", "another client reads %q")
		} else {
			own := "leasehold:sem:{" + key + ":k}:holders"
			Expect(t, rdb.ZAdd(t.Context(), own, redis.Z{}).Err(), nil, "a key of the packages: %v")
			for what, err := range map[string]error{
				"another's key":   rdb.Get(t.Context(), key).Err(),
				"another command": rdb.Type(t.Context(), own).Err(),
			} {
				Check(t, err != nil && strings.HasPrefix(err.Error(), "NOPERM"), "%s: %v; want NOPERM", what, err)
			}
			plain := redis.NewClient(&redis.Options{Addr: rdb.(*redis.Client).Options().Addr, MaxRetries: -1})
			defer plain.Close()
			Check(t, plain.Ping(t.Context()).Err() != nil, "the port of TLS answers without")
		}
		if _, isCluster := rdb.(*redis.ClusterClient); isCluster != (target.Kind == KindCluster) {
			t.Fatalf("kind %s with a client of type %T", target.Kind, rdb)
		}
	})
	if n := len(Installed()); n > 0 && (kinds[KindSingle] != n || kinds[KindCluster] != 1 || kinds[KindTLS] != 1 || kinds[KindSentinel] != 1) {
		t.Errorf("of %d versions: %v", n, kinds)
	}
}
