// Package multi holds what the documentation of the package multi promises, as tests on every kind of server.
package multi

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// fixture is a family of locks, and one of permits with the same name, on one target.
type fixture struct{ *harness.Fixture }

func each(t *testing.T, fn func(f *fixture))   { in(t, harness.Each, fn) }
func bubble(t *testing.T, fn func(f *fixture)) { in(t, harness.Bubble, fn) }

func in(t *testing.T, where func(*testing.T, string, func(*harness.Fixture)), fn func(f *fixture)) {
	t.Helper()
	where(t, harness.Locks, func(f *harness.Fixture) { fn(&fixture{f}) })
}

// A process has a handle of each family, and a client with a wire.
type process struct {
	f     *fixture
	locks *mutex.Mutex
	caps  *semaphore.Semaphore // with a limit of 3
	rdb   redis.UniversalClient
	wire  *harness.Wire
}

// open makes a process, which is closed when the test ends.
func (f *fixture) open(mod ...func(*mutex.Config)) *process {
	f.Helper()
	w := &harness.Wire{}
	rdb := f.Connect(w)
	rdb.AddHook(w)
	p := &process{f: f, rdb: rdb, wire: w}
	cfg := mutex.Config{Name: f.Family, TTL: 3 * time.Second}
	for _, change := range mod {
		change(&cfg)
	}
	if cfg.KeepFor == 0 {
		cfg.KeepFor = harness.KeepFor(cfg.TTL)
	}
	p.locks = redistest.Must(mutex.New(rdb, cfg))(f)
	p.caps = redistest.Must(semaphore.New(rdb, semaphore.Config{
		Name: f.Family, Limit: 3, TTL: cfg.TTL, LocalFor: cfg.LocalFor, KeepFor: cfg.KeepFor, Observer: cfg.Observer,
	}))(f)
	f.Cleanup(func() {
		p.wire.Heal()
		harness.Close(f.T, p.locks)
		harness.Close(f.T, p.caps)
	})
	return p
}

// lockItems are the locks of keys.
func (p *process) lockItems(keys ...string) (all []multi.Item) {
	for _, key := range keys {
		all = append(all, multi.Lock(p.locks, key))
	}
	return all
}

// take takes what is free.
func (p *process) take(items ...multi.Item) *multi.Lease {
	p.f.Helper()
	return redistest.Must(multi.TryAcquire(p.f.Context(), items...))(p.f)
}

// takeLock takes a lock that is free, by itself.
func (p *process) takeLock(key string) *mutex.Lock {
	p.f.Helper()
	return redistest.Must(p.locks.TryLock(p.f.Context(), key))(p.f)
}

// waiting is an Acquire under way.
type waiting = harness.Call[*multi.Lease]

// wait starts an Acquire that has to queue for the lock of key, and returns when it does.
func (p *process) wait(ctx context.Context, key string, items ...multi.Item) *waiting {
	p.f.Helper()
	return harness.StartQueued(p.f.Fixture, key, func() (*multi.Lease, error) { return multi.Acquire(ctx, items...) })
}

func (f *fixture) release(l *multi.Lease) {
	f.Helper()
	redistest.NoError(f, l.Release())
}

// wantFree waits until nothing is held of these keys, and nobody waits for them.
func (f *fixture) wantFree(keys ...string) {
	f.Helper()
	for _, kind := range []string{harness.Locks, harness.Permits} {
		for _, key := range keys {
			for _, part := range []string{"holders", "queue"} {
				redistest.Eventually(f, kind+" "+key+" to be free", func() bool {
					return f.RDB.ZCard(f.Context(), harness.Part(kind, f.Family, key, part)).Val() == 0
				})
			}
		}
	}
}
