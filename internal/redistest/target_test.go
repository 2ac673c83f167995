package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestEachReachesItsTarget(t *testing.T) {
	Each(t, func(t *testing.T, target Target) {
		rdb, other := target.Client(t), target.Client(t)
		key := Name(t)
		if err := rdb.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := other.Get(t.Context(), key).Result(); err != nil || got != "v" {
			t.Fatalf("another client reads %q, %v", got, err)
		}
		if _, isCluster := rdb.(*redis.ClusterClient); isCluster != (target.Kind == KindCluster) {
			t.Fatalf("kind %s with a client of type %T", target.Kind, rdb)
		}
	})
}

func TestNamesAreShortPlainAndUnique(t *testing.T) {
	t.Run("With a long subtest's name / Ümlauts {tags}:%", func(t *testing.T) {
		a, b := Name(t), Name(t)
		if a == b {
			t.Fatalf("twice %q", a)
		}
		for _, r := range a {
			if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-') {
				t.Fatalf("%q holds %q", a, r)
			}
		}
		if len(a) > 33 {
			t.Fatalf("%q is %d bytes long", a, len(a))
		}
	})
}
