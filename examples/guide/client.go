package guide

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// boundedClient gives up on a connection after a second, and on an answer after
// two.
func boundedClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                  addr,
		DialTimeout:           time.Second,
		DialerRetries:         1, // go-redis repeats the call anyway (MaxRetries)
		ReadTimeout:           2 * time.Second,
		PoolSize:              50,
		MinIdleConns:          5,
		ContextTimeoutEnabled: true,
	})
}

// cachingClient keeps what it has read. Redis tells it when a value changes.
func cachingClient(options *redis.Options) *redis.Client {
	options.ClientSideCacheConfig = &redis.ClientSideCacheConfig{MaxEntries: 10_000}
	return redis.NewClient(options)
}
