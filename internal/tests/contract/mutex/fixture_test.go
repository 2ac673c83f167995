// Package mutex holds what the documentation of the package mutex promises, as tests on every kind of server.
package mutex

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }

// fixture is one family of locks on one target.
type fixture struct{ *harness.Fixture }

func each(t *testing.T, fn func(f *fixture))   { in(t, harness.Each, fn) }
func some(t *testing.T, fn func(f *fixture))   { in(t, harness.Some, fn) }
func bubble(t *testing.T, fn func(f *fixture)) { in(t, harness.Bubble, fn) }

func withProxy(t *testing.T, fn func(f *fixture, p *redistest.Proxy)) {
	in(t, harness.Single, func(f *fixture) { fn(f, redistest.NewProxy(f.T, f.Addr)) })
}

func in(t *testing.T, where func(*testing.T, string, func(*harness.Fixture)), fn func(f *fixture)) {
	t.Helper()
	where(t, harness.Locks, func(f *harness.Fixture) { fn(&fixture{f}) })
}

// open makes a handle of the family with a client and a wire of its own. It is
// closed, over a wire that works again, when the test ends.
func (f *fixture) open(mod ...func(*mutex.Config)) (*mutex.Mutex, *harness.Wire) {
	f.Helper()
	w := &harness.Wire{}
	return f.openOn(f.Connect(w), w, mod...), w
}

func (f *fixture) openOn(rdb redis.UniversalClient, w *harness.Wire, mod ...func(*mutex.Config)) *mutex.Mutex {
	f.Helper()
	cfg := mutex.Config{Name: f.Family}
	for _, change := range mod {
		change(&cfg)
	}
	if cfg.KeepFor == 0 {
		cfg.KeepFor = harness.KeepFor(cfg.TTL)
	}
	rdb.AddHook(w)
	m := redistest.Must(mutex.New(rdb, cfg))(f)
	f.Cleanup(func() {
		w.Heal()
		harness.Close(f.T, m)
	})
	return m
}

func ttl(d time.Duration) func(*mutex.Config) { return func(c *mutex.Config) { c.TTL = d } }

func localFor(d time.Duration) func(*mutex.Config) { return func(c *mutex.Config) { c.LocalFor = d } }

func maxHold(d time.Duration) func(*mutex.Config) { return func(c *mutex.Config) { c.MaxHold = d } }

func observer(o leasehold.Observer) func(*mutex.Config) {
	return func(c *mutex.Config) { c.Observer = o }
}

// fence is the last token that was issued for key, 0 where none is known.
func (f *fixture) fence(key string) uint64 {
	f.Helper()
	t, err := f.RDB.Get(context.Background(), f.Part(key, "fence")).Uint64()
	redistest.CheckNow(f, err == nil || err == redis.Nil, "%v", err)
	return t
}

// take locks what is free.
func (f *fixture) take(m *mutex.Mutex, key string) *mutex.Lock {
	f.Helper()
	l, err := harness.Take(func() (*mutex.Lock, error) { return m.TryLock(context.Background(), key) })
	redistest.CheckNow(f, err == nil, "take: %v", err)
	return l
}

// waiting is a Lock under way.
type waiting = harness.Call[*mutex.Lock]

// start starts a Lock.
func (f *fixture) start(ctx context.Context, m *mutex.Mutex, key string) *waiting {
	return harness.Start(f.T, func() (*mutex.Lock, error) { return m.Lock(ctx, key) })
}

// wait starts a Lock that has to queue, and returns when it does, or has ended already.
func (f *fixture) wait(ctx context.Context, m *mutex.Mutex, key string) *waiting {
	f.Helper()
	return harness.StartQueued(f.Fixture, key, func() (*mutex.Lock, error) { return m.Lock(ctx, key) })
}

func (f *fixture) inspect(m *mutex.Mutex, key string) mutex.State {
	f.Helper()
	return redistest.Must(m.Inspect(f.Context(), key))(f)
}

func unlock(t testing.TB, l *mutex.Lock) {
	t.Helper()
	redistest.Require(t, l.Unlock(), nil, "unlock: %v")
}
