package peers

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A cached value, beside a bare GET and decode of the same. All use one client.
func BenchmarkHit(b *testing.B) {
	harness.Hits(b, func(b *testing.B, rdb *redis.Client, v harness.User) []harness.Runner {
		return []harness.Runner{
			{Name: "hit", Pair: hit(b, rdb, v, "leasehold")},
			{Name: "gorediscache", Pair: hit(b, rdb, v, "gorediscache")},
			{Name: "rockscache", Pair: hit(b, rdb, v, "rockscache")},
		}
	})
}

// hit asks for v, which is cached when hit returns.
func hit(b *testing.B, rdb *redis.Client, v harness.User, who string) func() error {
	b.Helper()
	get, stop, err := caches[who](rdb, 0)
	redistest.WantErr(b, err)
	b.Cleanup(stop)
	key := who + "-hit"
	redistest.Must(get(key, func() (harness.User, error) { return v, nil }))(b)
	missed := func() (harness.User, error) { return harness.User{}, errors.New("a miss") }
	return func() error {
		u, err := get(key, missed)
		if err == nil && len(u.Notes) != len(v.Notes) {
			return errors.New("another value")
		}
		return err
	}
}
