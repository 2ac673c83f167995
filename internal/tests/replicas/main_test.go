// Package replicas has grants that replicas must confirm: on a real primary with two
// replicas, whose links are cut and healed.
package replicas

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// lease is a lock or a semaphore's lease.
type lease interface {
	Context() context.Context
	Deadline() time.Time
	Extend(ctx context.Context, ttl time.Duration) error
	giveBack() error
}

type (
	lockHeld   struct{ *mutex.Lock }
	permitHeld struct{ *semaphore.Lease }
)

func (l lockHeld) giveBack() error   { return l.Unlock() }
func (l permitHeld) giveBack() error { return l.Release() }

// handle is a handle of one of the kinds of lease. Without an error there is a lease.
type handle struct {
	acquire, tryAcquire func(ctx context.Context, key string) (lease, error)
}

// maker makes handles of one kind of lease. A semaphore takes from the Config what both have.
type maker = func(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle

var kinds = map[string]maker{
	"mutex": newMutex,
	"semaphore": func(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle {
		return newSemaphore(tb, rdb, cfg, 0)
	},
	"mutex, local turns": func(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle {
		cfg.LocalFor = 20 * time.Millisecond
		return newMutex(tb, rdb, cfg)
	},
	"total": func(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle {
		return newSemaphore(tb, rdb, cfg, 10_000)
	},
}

func newMutex(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) handle {
	tb.Helper()
	harness.StrictOnly(tb, harness.Locks)
	cfg.KeepFor = harness.KeepFor(cfg.TTL)
	m := openMutex(tb, rdb, cfg)
	return handle{
		func(ctx context.Context, key string) (lease, error) {
			l, err := m.Lock(ctx, key)
			return lockHeld{l}, err
		},
		func(ctx context.Context, key string) (lease, error) {
			l, err := m.TryLock(ctx, key)
			return lockHeld{l}, err
		},
	}
}

// openMutex makes a mutex that is closed at the end of the test.
func openMutex(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) *mutex.Mutex {
	tb.Helper()
	m := redistest.Must(mutex.New(rdb, cfg))(tb)
	tb.Cleanup(func() { harness.CloseWithin(tb, 30*time.Second, m) })
	return m
}

func newSemaphore(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config, total int) handle {
	tb.Helper()
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{
		Name: cfg.Name, Limit: 1, Total: total, TTL: cfg.TTL, Replicas: cfg.Replicas, ReplicaWait: cfg.ReplicaWait,
	}))(tb)
	tb.Cleanup(func() { harness.CloseWithin(tb, 30*time.Second, s) })
	return handle{
		func(ctx context.Context, key string) (lease, error) {
			l, err := s.Acquire(ctx, key)
			return permitHeld{l}, err
		},
		func(ctx context.Context, key string) (lease, error) {
			l, err := s.TryAcquire(ctx, key)
			return permitHeld{l}, err
		},
	}
}

// granted acquires key, as often as it takes: replicas that were cut off, on a busy machine,
// may need more than ReplicaWait.
func granted(tb testing.TB, h handle, key string) (l lease) {
	tb.Helper()
	redistest.Eventually(tb, "a grant of "+key, func() bool {
		var err error
		l, err = h.acquire(context.Background(), key)
		return err == nil
	})
	return l
}

// awaitBlocked waits until a WAIT has arrived at the server: it blocks its client there.
func awaitBlocked(tb testing.TB, rdb redis.UniversalClient) {
	tb.Helper()
	redistest.Eventually(tb, "WAIT at the server", func() bool { return blocked(rdb) })
}

func blocked(rdb redis.UniversalClient) bool {
	return !strings.Contains(rdb.Info(context.Background(), "clients").Val(), "blocked_clients:0\r\n")
}

// eachVersion runs fn on a primary with two replicas of each version.
func eachVersion(t *testing.T, fn func(t *testing.T, x *redistest.Replicated)) {
	t.Helper()
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.String(), func(t *testing.T) { fn(t, redistest.StartReplicated(t, v, 2)) })
	}
}

// onNewest runs fn on a primary with two replicas of the newest version, for each kind of lease.
func onNewest(t *testing.T, fn func(t *testing.T, x *redistest.Replicated, newHandle maker)) {
	t.Helper()
	x := redistest.StartReplicated(t, redistest.Newest(t), 2)
	for kind, newHandle := range kinds {
		t.Run(kind, func(t *testing.T) {
			defer x.Heal()
			fn(t, x, newHandle)
		})
	}
}
