package peers

import (
	"context"
	"strings"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/singleflight"
)

// user is what is cached.
type user struct {
	ID    int64
	Name  string
	Email string
	Roles []string
	Notes string
}

func ada(notes int) user {
	return user{ID: 7, Name: "Ada Lovelace", Email: "ada@example.org", Roles: []string{"admin", "ops"}, Notes: strings.Repeat("n", notes)}
}

// fetch returns the cached value of key, or that of load, which is then cached
// for an hour.
type fetch func(key string, load func() (user, error)) (user, error)

// cacheOpener makes a cache on rdb, and what closes it. lease bounds a load that
// is not renewed, where there is such a thing; 0 is the library's default.
type cacheOpener func(rdb *redis.Client, lease time.Duration) (fetch, func(), error)

// openLeasehold is leasehold's singleflight with the defaults.
func openLeasehold(rdb *redis.Client, lease time.Duration) (fetch, func(), error) {
	g, err := singleflight.New(rdb, singleflight.Config[user]{Name: "bench", TTL: time.Hour, LeaseTTL: lease})
	if err != nil {
		return nil, nil, err
	}
	stop := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = g.Close(ctx)
	}
	return func(key string, load func() (user, error)) (user, error) {
		return g.Do(context.Background(), key, func(context.Context) (user, error) { return load() })
	}, stop, nil
}

// openGoRedisCache is go-redis/cache's Once, without its local cache, which
// nothing invalidates, and with msgpack alone: its default compresses with S2,
// and what is stored would not be the same. It has no lock: a key is loaded once
// in each process.
func openGoRedisCache(rdb *redis.Client, _ time.Duration) (fetch, func(), error) {
	c := cache.New(&cache.Options{
		Redis:     rdb,
		Marshal:   func(v any) ([]byte, error) { return msgpack.Marshal(v) },
		Unmarshal: func(data []byte, v any) error { return msgpack.Unmarshal(data, v) },
	})
	return func(key string, load func() (user, error)) (user, error) {
		var u user
		err := c.Once(&cache.Item{
			Key:   key,
			Value: &u,
			TTL:   time.Hour,
			Do:    func(*cache.Item) (any, error) { return load() },
		})
		return u, err
	}, func() {}, nil
}

// openRockscache is rockscache with NewDefaultOptions, as its documentation has
// it, by which who waits asks every 100 ms, or as often as sleep says. It stores
// strings: msgpack around it. Its locks are of whole seconds.
func openRockscache(sleep time.Duration) cacheOpener {
	return func(rdb *redis.Client, lease time.Duration) (fetch, func(), error) {
		o := rockscache.NewDefaultOptions()
		o.LockSleep = sleep
		if lease > 0 {
			o.LockExpire = lease
		}
		c := rockscache.NewClient(rdb, o)
		return func(key string, load func() (user, error)) (user, error) {
			var u user
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
var caches = map[string]cacheOpener{
	"leasehold":       openLeasehold,
	"gorediscache":    openGoRedisCache,
	"rockscache":      openRockscache(100 * time.Millisecond),
	"rockscache-10ms": openRockscache(10 * time.Millisecond),
}
