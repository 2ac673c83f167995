package peers

import (
	"errors"
	"testing"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// openGoRedisCache is go-redis/cache's Once, without its local cache, which nothing invalidates, and with msgpack
// alone: its default compresses with S2, and what is stored would not be the same. It has no lock: a key is
// loaded once in each process.
func openGoRedisCache(rdb *redis.Client, _ time.Duration) (harness.Fetch, func(), error) {
	c := cache.New(&cache.Options{
		Redis:     rdb,
		Marshal:   func(v any) ([]byte, error) { return msgpack.Marshal(v) },
		Unmarshal: func(data []byte, v any) error { return msgpack.Unmarshal(data, v) },
	})
	return func(key string, load func() (harness.User, error)) (harness.User, error) {
		var u harness.User
		err := c.Once(&cache.Item{
			Key:   key,
			Value: &u,
			TTL:   time.Hour,
			Do:    func(*cache.Item) (any, error) { return load() },
		})
		return u, err
	}, func() {}, nil
}

// openRockscache is rockscache with NewDefaultOptions, as its documentation has it, by which who waits asks every
// 100 ms, or as often as sleep says. It stores strings: msgpack around it. Its locks are of whole seconds.
func openRockscache(sleep time.Duration) harness.Cache {
	return func(rdb *redis.Client, lease time.Duration) (harness.Fetch, func(), error) {
		o := rockscache.NewDefaultOptions()
		o.LockSleep = sleep
		if lease > 0 {
			o.LockExpire = lease
		}
		c := rockscache.NewClient(rdb, o)
		return func(key string, load func() (harness.User, error)) (harness.User, error) {
			var u harness.User
			packed, err := c.Fetch(key, time.Hour, func() (string, error) {
				v, err := load()
				if err != nil {
					return "", err
				}
				data, err := msgpack.Marshal(v)
				return string(data), err
			})
			if err != nil {
				return u, err
			}
			err = msgpack.Unmarshal([]byte(packed), &u)
			return u, err
		}, func() {}, nil
	}
}

// caches are the competitors by the names of their metrics. How often rockscache
// asks matters to those that wait only.
var caches = map[string]harness.Cache{
	"leasehold":       harness.Singleflight,
	"gorediscache":    openGoRedisCache,
	"rockscache":      openRockscache(100 * time.Millisecond),
	"rockscache-10ms": openRockscache(10 * time.Millisecond),
}

func init() { harness.RegisterCallers(caches) }

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

// See bench.BenchmarkStampede. An op is a cold key for each library.
func BenchmarkStampede(b *testing.B) {
	harness.NewFleet(b, harness.Start(b), 8, 200, 100*time.Millisecond, 0).
		Compare("leasehold", "gorediscache", "rockscache", "rockscache-10ms", "ping")
}

// The same with a load of three times the lease: 4 processes of 20 callers each, a lease of 1 s, which is the
// shortest that rockscache takes, and a load of 3 s. go-redis/cache has no lease, and loads once in each process.
// What is reported is as with BenchmarkStampede.
func BenchmarkLongLoad(b *testing.B) {
	const lease = time.Second
	harness.NewFleet(b, harness.Start(b), 4, 20, 3*lease, lease).
		Compare("leasehold", "gorediscache", "rockscache")
}
