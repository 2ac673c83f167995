package peers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

type library struct {
	name string
	// as says how it is used: what its documentation offers.
	as string
	// open makes what takes locks with that client.
	open func(t *testing.T, rdb *redis.Client, ttl time.Duration) locker
}

type locker struct {
	lock take // waits for the lock
	try  take // takes it if it is free
}

type take func(ctx context.Context, key string) (held, error)

type held struct {
	unlock func() error
	// extend sets the time that is left. It says whether the lock is held.
	extend func(ttl time.Duration) (bool, error)
}

var libraries = []library{
	{"redislock 0.9.4", "`LinearBackoff(100ms)`, bounded by ctx", openRedislock},
	{"redsync 4.18.1", "`WithExpiry(ttl)`, 32 tries 50 to 250 ms apart (its default)", openRedsync(false)},
	{"leasehold mutex", "`Config{TTL: ttl}`", openLeasehold},
}

// redsyncNX is redsync with an option that its documentation offers for servers
// that restart often. It matters to Extend only.
var redsyncNX = library{"redsync 4.18.1, `WithSetNXOnExtend`", "as above, with that option", openRedsync(true)}

func openRedislock(_ *testing.T, rdb *redis.Client, ttl time.Duration) locker {
	c := redislock.New(rdb)
	obtain := func(o *redislock.Options) take {
		return func(ctx context.Context, key string) (held, error) {
			l, err := c.Obtain(ctx, key, ttl, o)
			return held{
				func() error { return l.Release(context.Background()) },
				func(ttl time.Duration) (bool, error) {
					err := l.Refresh(context.Background(), ttl, nil)
					return err == nil, err
				},
			}, err
		}
	}
	return locker{obtain(&redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}), obtain(nil)}
}

func openRedsync(nx bool) func(*testing.T, *redis.Client, time.Duration) locker {
	return func(_ *testing.T, rdb *redis.Client, ttl time.Duration) locker {
		rs, options := redsync.New(goredis.NewPool(rdb)), []redsync.Option{redsync.WithExpiry(ttl)}
		if nx {
			options = append(options, redsync.WithSetNXOnExtend())
		}
		with := func(lock func(*redsync.Mutex, context.Context) error) take {
			return func(ctx context.Context, key string) (held, error) {
				m := rs.NewMutex(key, options...)
				return held{
					func() error { return unlocked(m.Unlock()) },
					func(time.Duration) (bool, error) { return m.Extend() }, // to the expiry that it was made with
				}, lock(m, ctx)
			}
		}
		return locker{with((*redsync.Mutex).LockContext), with((*redsync.Mutex).TryLockContext)}
	}
}

func unlocked(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("not unlocked")
	}
	return err
}

func openLeasehold(t *testing.T, rdb *redis.Client, ttl time.Duration) locker {
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "peers", TTL: ttl}))(t)
	closes(t, m)
	with := func(lock func(context.Context, string) (*mutex.Lock, error)) take {
		return func(ctx context.Context, key string) (held, error) {
			l, err := lock(ctx, key)
			return held{
				func() error { return l.Unlock() },
				func(ttl time.Duration) (bool, error) {
					err := l.Extend(context.Background(), ttl)
					return err == nil, err
				},
			}, err
		}
	}
	return locker{with(m.Lock), with(m.TryLock)}
}

func closes(t *testing.T, m *mutex.Mutex) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = m.Close(ctx)
	})
}

// busy: the lock is somebody else's, as each of them says that.
func busy(err error) bool {
	var taken *redsync.ErrTaken
	return errors.Is(err, redislock.ErrNotObtained) || errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) ||
		errors.Is(err, leasehold.ErrBusy)
}
