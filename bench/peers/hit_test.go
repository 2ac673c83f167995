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
	for _, size := range []struct {
		name  string
		notes int
	}{{"100B", 20}, {"4kB", 4000}, {"100kB", 100_000}} {
		b.Run(size.name, func(b *testing.B) {
			rdb := harness.Start(b).Client()
			v := harness.Ada(size.notes)
			harness.Interleave(b,
				harness.Runner{Name: "floor", Pair: harness.BareHit(b, rdb, v)},
				harness.Runner{Name: "hit", Pair: hit(b, rdb, v, "leasehold")},
				harness.Runner{Name: "gorediscache", Pair: hit(b, rdb, v, "gorediscache")},
				harness.Runner{Name: "rockscache", Pair: hit(b, rdb, v, "rockscache")},
			)
		})
	}
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
