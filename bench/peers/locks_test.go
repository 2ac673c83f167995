package peers

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// turn waits for the lock of key, runs hold with it, unless that is nil, and gives it back. ctx bounds the wait
// alone: what was taken is given back also when ctx has ended.
type turn func(ctx context.Context, key string, hold func()) error

// opener makes what takes locks of srv. rdb is the client to use, of a library that uses go-redis.
type opener func(b testing.TB, srv *harness.Server, rdb *redis.Client) turn

// forNothing holds a lock for no time.
func forNothing() {}

// A library is what takes locks, by the name of its metrics.
type library struct {
	name string
	open opener
}

// libraries are all of them; redislock tries that often.
func libraries(backoff time.Duration) []library {
	return []library{
		{"mutex", openMutex}, {"redislock", openRedislock(backoff)}, {"redsync", openRedsync}, {"rueidislock", openRueidislock},
	}
}

// openMutex is leasehold's lock with the defaults: a TTL of 30 s, renewed, a
// fencing token, turns in the order of arrival.
func openMutex(b testing.TB, _ *harness.Server, rdb *redis.Client) turn {
	b.Helper()
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "bench"}))(b)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = m.Close(ctx)
	})
	return func(ctx context.Context, key string, hold func()) error {
		l, err := m.Lock(ctx, key)
		if err != nil {
			return err
		}
		hold()
		return l.Unlock()
	}
}

// openRedislock is redislock with a TTL of 30 s and a linear backoff, which is
// what its documentation's example has. It neither renews nor counts tokens.
func openRedislock(backoff time.Duration) opener {
	return func(_ testing.TB, _ *harness.Server, rdb *redis.Client) turn {
		return redislockOn(rdb, backoff)
	}
}

// redislockOn takes any client, for redislock takes any.
func redislockOn(rdb redislock.RedisClient, backoff time.Duration) turn {
	c := redislock.New(rdb)
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(backoff)} // keeps no state: may be shared
	return func(ctx context.Context, key string, hold func()) error {
		l, err := c.Obtain(ctx, key, 30*time.Second, options)
		if err != nil {
			return err
		}
		hold()
		return l.Release(context.Background())
	}
}

// openRedsync is redsync on one server with its defaults: 8 s, and a try each 50 to 250 ms; but as many tries as
// ctx allows instead of 32, since all others wait for as long as ctx allows, too. A Mutex is made for each turn,
// for it holds the state of one lock.
func openRedsync(_ testing.TB, _ *harness.Server, rdb *redis.Client) turn {
	rs := redsync.New(goredis.NewPool(rdb))
	patient := redsync.WithTries(math.MaxInt)
	return func(ctx context.Context, key string, hold func()) error {
		m := rs.NewMutex(key, patient)
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		hold()
		ok, err := m.Unlock()
		if err == nil && !ok {
			return errors.New("redsync: not unlocked")
		}
		return err
	}
}

// openRueidislock is rueidislock as its documentation has it for one server of
// 7.0.5 or later: KeyMajority 1 and NoLoopTracking. It has its own client, with
// the one connection that it insists on and pipelines by itself. It renews.
//
// TryNextAfter is for going on to the next of several keys, of which there is one: so it is no reason to give up,
// which the default of 20 ms is on a busy machine, after which WithContext waits for a message that nobody sends.
func openRueidislock(b testing.TB, srv *harness.Server, _ *redis.Client) turn {
	b.Helper()
	o := redistest.Must(rueidis.ParseURL(srv.URL()))(b)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   o,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   5 * time.Second,
	})
	redistest.WantErr(b, err)
	b.Cleanup(locker.Close)
	return func(ctx context.Context, key string, hold func()) error {
		_, unlock, err := locker.WithContext(ctx, key)
		if err != nil {
			return err
		}
		hold()
		unlock()
		return nil
	}
}
