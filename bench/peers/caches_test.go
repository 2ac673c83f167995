package peers

import (
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
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
