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
	"github.com/leasehold-go/leasehold/mutex"
)

// library is how each of them takes and gives back a lock of a key.
type library struct {
	name string
	// as says how it is used: what its documentation offers.
	as string
	// open makes what takes locks with that client.
	open func(t *testing.T, rdb *redis.Client, ttl time.Duration) locker
}

type locker interface {
	// lock waits for the lock.
	lock(ctx context.Context, key string) (held, error)
	// try takes it if it is free.
	try(ctx context.Context, key string) (held, error)
}

type held interface {
	unlock() error
	// extend sets the time that is left. It says whether the lock is held.
	extend(ttl time.Duration) (bool, error)
}

var libraries = []library{
	{"redislock 0.9.4", "`LinearBackoff(100ms)`, bounded by ctx", openRedislock},
	{"redsync 4.18.1", "`WithExpiry(ttl)`, 32 tries 50 to 250 ms apart (its default)", openRedsync(false)},
	{"leasehold mutex", "`Config{TTL: ttl}`", openLeasehold},
}

// redsyncNX is redsync with an option that its documentation offers for servers
// that restart often. It matters to Extend only.
var redsyncNX = library{"redsync 4.18.1, `WithSetNXOnExtend`", "as above, with that option", openRedsync(true)}

type redislocker struct {
	c   *redislock.Client
	ttl time.Duration
}

func openRedislock(_ *testing.T, rdb *redis.Client, ttl time.Duration) locker {
	return redislocker{redislock.New(rdb), ttl}
}

func (l redislocker) lock(ctx context.Context, key string) (held, error) {
	return l.obtain(ctx, key, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
}

func (l redislocker) try(ctx context.Context, key string) (held, error) {
	return l.obtain(ctx, key, nil)
}

func (l redislocker) obtain(ctx context.Context, key string, o *redislock.Options) (held, error) {
	got, err := l.c.Obtain(ctx, key, l.ttl, o)
	if err != nil {
		return nil, err
	}
	return redislockHeld{got}, nil
}

type redislockHeld struct{ l *redislock.Lock }

func (h redislockHeld) unlock() error { return h.l.Release(context.Background()) }

func (h redislockHeld) extend(ttl time.Duration) (bool, error) {
	err := h.l.Refresh(context.Background(), ttl, nil)
	return err == nil, err
}

type redsyncLocker struct {
	rs      *redsync.Redsync
	options []redsync.Option
}

func openRedsync(nx bool) func(*testing.T, *redis.Client, time.Duration) locker {
	return func(_ *testing.T, rdb *redis.Client, ttl time.Duration) locker {
		l := redsyncLocker{redsync.New(goredis.NewPool(rdb)), []redsync.Option{redsync.WithExpiry(ttl)}}
		if nx {
			l.options = append(l.options, redsync.WithSetNXOnExtend())
		}
		return l
	}
}

func (l redsyncLocker) lock(ctx context.Context, key string) (held, error) {
	m := l.rs.NewMutex(key, l.options...)
	return redsyncHeld{m}, m.LockContext(ctx)
}

func (l redsyncLocker) try(ctx context.Context, key string) (held, error) {
	m := l.rs.NewMutex(key, l.options...)
	return redsyncHeld{m}, m.TryLockContext(ctx)
}

type redsyncHeld struct{ m *redsync.Mutex }

func (h redsyncHeld) unlock() error {
	ok, err := h.m.Unlock()
	if err == nil && !ok {
		return errors.New("not unlocked")
	}
	return err
}

// extend sets the expiry that the mutex was made with: it takes no other.
func (h redsyncHeld) extend(time.Duration) (bool, error) { return h.m.Extend() }

type leaseholdLocker struct{ m *mutex.Mutex }

func openLeasehold(t *testing.T, rdb *redis.Client, ttl time.Duration) locker {
	m, err := mutex.New(rdb, mutex.Config{Name: "peers", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = m.Close(ctx)
	})
	return leaseholdLocker{m}
}

func (l leaseholdLocker) lock(ctx context.Context, key string) (held, error) {
	got, err := l.m.Lock(ctx, key)
	return leaseholdHeld{got}, err
}

func (l leaseholdLocker) try(ctx context.Context, key string) (held, error) {
	got, err := l.m.TryLock(ctx, key)
	return leaseholdHeld{got}, err
}

type leaseholdHeld struct{ l *mutex.Lock }

func (h leaseholdHeld) unlock() error { return h.l.Unlock() }

func (h leaseholdHeld) extend(ttl time.Duration) (bool, error) {
	err := h.l.Extend(context.Background(), ttl)
	return err == nil, err
}

// busy: the lock is somebody else's, as each of them says that.
func busy(err error) bool {
	var taken *redsync.ErrTaken
	return errors.Is(err, redislock.ErrNotObtained) || errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) ||
		errors.Is(err, leasehold.ErrBusy)
}
