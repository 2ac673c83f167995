// Package semaphore holds what the documentation of the package semaphore promises, as tests on every kind of server.
package semaphore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }

// fixture is one family of permits on one target.
type fixture struct{ *harness.Fixture }

func each(t *testing.T, fn func(f *fixture))   { in(t, harness.Each, fn) }
func some(t *testing.T, fn func(f *fixture))   { in(t, harness.Some, fn) }
func bubble(t *testing.T, fn func(f *fixture)) { in(t, harness.Bubble, fn) }

func withProxy(t *testing.T, fn func(f *fixture, p *redistest.Proxy)) {
	in(t, harness.Single, func(f *fixture) { fn(f, redistest.NewProxy(f.T, f.Addr)) })
}

func in(t *testing.T, where func(*testing.T, string, func(*harness.Fixture)), fn func(f *fixture)) {
	t.Helper()
	where(t, harness.Permits, func(f *harness.Fixture) { fn(&fixture{f}) })
}

// open makes a handle of the family with a client and a wire of its own. It is
// closed, over a wire that works again, when the test ends.
func (f *fixture) open(mod ...func(*semaphore.Config)) (*semaphore.Semaphore, *harness.Wire) {
	f.Helper()
	w := &harness.Wire{}
	return f.openOn(f.Connect(w), w, mod...), w
}

// openVia is open through a proxy.
func (f *fixture) openVia(p *redistest.Proxy, mod ...func(*semaphore.Config)) *semaphore.Semaphore {
	f.Helper()
	return f.openOn(p.Client(), &harness.Wire{}, mod...)
}

func (f *fixture) openOn(rdb redis.UniversalClient, w *harness.Wire, mod ...func(*semaphore.Config)) *semaphore.Semaphore {
	f.Helper()
	cfg := semaphore.Config{Name: f.Family, Limit: 1}
	for _, m := range mod {
		m(&cfg)
	}
	if cfg.KeepFor == 0 && cfg.Total == 0 {
		cfg.KeepFor = harness.KeepFor(cfg.TTL)
	}
	rdb.AddHook(w)
	s := redistest.Must(semaphore.New(rdb, cfg))(f)
	f.Cleanup(func() {
		w.Heal()
		harness.Close(f.T, s)
	})
	return s
}

func limit(n int) func(*semaphore.Config) { return func(c *semaphore.Config) { c.Limit = n } }

func ttl(d time.Duration) func(*semaphore.Config) { return func(c *semaphore.Config) { c.TTL = d } }

func observer(o leasehold.Observer) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.Observer = o }
}

// take acquires n permits that are free.
func (f *fixture) take(s *semaphore.Semaphore, key string, n int) *semaphore.Lease {
	f.Helper()
	l, err := harness.Take(func() (*semaphore.Lease, error) { return s.TryAcquireN(context.Background(), key, n) })
	redistest.CheckNow(f, err == nil, "take %d: %v", n, err)
	return l
}

// waiting is an acquisition under way.
type waiting = harness.Call[*semaphore.Lease]

// wait starts an AcquireN of n permits that has to queue, and returns when it does, or has ended already.
func (f *fixture) wait(ctx context.Context, s *semaphore.Semaphore, key string, n int) *waiting {
	f.Helper()
	return harness.StartQueued(f.Fixture, key, func() (*semaphore.Lease, error) { return s.AcquireN(ctx, key, n) })
}

// start starts an AcquireN of n permits.
func (f *fixture) start(s *semaphore.Semaphore, key string, n int) *waiting {
	return harness.Start(f.T, func() (*semaphore.Lease, error) { return s.AcquireN(f.Context(), key, n) })
}

func release(t testing.TB, l *semaphore.Lease) {
	t.Helper()
	redistest.Require(t, l.Release(), nil, "release: %v")
}
