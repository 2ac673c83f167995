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

// handle is a handle of one of the kinds of lease.
type handle struct {
	acquire    func(ctx context.Context, key string) (lease, error)
	tryAcquire func(ctx context.Context, key string) (lease, error)
}

// settings are what the tests configure.
type settings struct {
	name        string
	ttl         time.Duration
	replicas    int
	replicaWait time.Duration
	localFor    time.Duration
}

// maker makes handles of one kind of lease.
type maker = func(tb testing.TB, rdb redis.UniversalClient, s settings) handle

var kinds = map[string]maker{
	"mutex":     newMutex,
	"semaphore": func(tb testing.TB, rdb redis.UniversalClient, s settings) handle { return newSemaphore(tb, rdb, s, 0) },
	"mutex, local turns": func(tb testing.TB, rdb redis.UniversalClient, s settings) handle {
		s.localFor = 20 * time.Millisecond
		return newMutex(tb, rdb, s)
	},
	"total": func(tb testing.TB, rdb redis.UniversalClient, s settings) handle {
		return newSemaphore(tb, rdb, s, 10_000)
	},
}

func newMutex(tb testing.TB, rdb redis.UniversalClient, s settings) handle {
	tb.Helper()
	harness.StrictOnly(tb, harness.Locks)
	m := openMutex(tb, rdb, mutex.Config{
		Name: s.name, TTL: s.ttl, Replicas: s.replicas, ReplicaWait: s.replicaWait, LocalFor: s.localFor, KeepFor: harness.KeepFor(s.ttl),
	})
	return opened(func(l *mutex.Lock) lease { return lockHeld{l} }, m.Lock, m.TryLock)
}

// openMutex makes a mutex that is closed at the end of the test.
func openMutex(tb testing.TB, rdb redis.UniversalClient, cfg mutex.Config) *mutex.Mutex {
	tb.Helper()
	m := redistest.Must(mutex.New(rdb, cfg))(tb)
	tb.Cleanup(func() { harness.CloseWithin(tb, 30*time.Second, m) })
	return m
}

func newSemaphore(tb testing.TB, rdb redis.UniversalClient, s settings, total int) handle {
	tb.Helper()
	m := redistest.Must(semaphore.New(rdb, semaphore.Config{
		Name: s.name, Limit: 1, Total: total, TTL: s.ttl, Replicas: s.replicas, ReplicaWait: s.replicaWait,
	}))(tb)
	tb.Cleanup(func() { harness.CloseWithin(tb, 30*time.Second, m) })
	return opened(func(l *semaphore.Lease) lease { return permitHeld{l} }, m.Acquire, m.TryAcquire)
}

func opened[L any](held func(L) lease, take, try func(context.Context, string) (L, error)) handle {
	of := func(call func(context.Context, string) (L, error)) func(context.Context, string) (lease, error) {
		return func(ctx context.Context, key string) (lease, error) {
			l, err := call(ctx, key)
			if err != nil {
				return nil, err
			}
			return held(l), nil
		}
	}
	return handle{of(take), of(try)}
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
