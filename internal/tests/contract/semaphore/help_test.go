package semaphore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// fixture is one family on one target, and a client that looks at what is in
// Redis.
type fixture struct {
	*testing.T
	connect func(w *redistest.Wire) redis.UniversalClient
	rdb     redis.UniversalClient
	addr    string // of the one server; "" where it is not one
	name    string
}

// each runs fn on every target, all at the same time.
func each(t *testing.T, fn func(f *fixture)) {
	t.Parallel()
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		fn(newFixture(t, target))
	})
}

// eachProxy is each for tests with a proxy, which stands before one server.
func eachProxy(t *testing.T, fn func(f *fixture, p *redistest.Proxy)) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		if target.Kind == redistest.KindCluster {
			return
		}
		t.Parallel()
		f := newFixture(t, target)
		fn(f, redistest.NewProxy(t, f.addr))
	})
}

func newFixture(t *testing.T, target redistest.Target) *fixture {
	f := &fixture{T: t, rdb: target.Admin(t), name: redistest.Name(t)}
	f.connect = func(w *redistest.Wire) redis.UniversalClient {
		return target.Client(t, func(o *redis.UniversalOptions) { o.Dialer = w.Dialer(o.Dialer) })
	}
	switch target.Kind {
	case redistest.KindMini:
		f.addr = target.Mini.Addr()
	case redistest.KindSingle:
		f.addr = target.Server.Addr()
	}
	return f
}

// bubble runs fn on an embedded server in a synctest bubble, where time passes
// only when everybody waits: for what takes long or must be exact.
func bubble(t *testing.T, fn func(f *fixture, server *miniredis.Miniredis)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		f := &fixture{T: t, rdb: client(), name: redistest.Name(t)}
		f.connect = func(w *redistest.Wire) redis.UniversalClient {
			return client(func(o *redis.Options) { o.Dialer = w.Dialer(o.Dialer) })
		}
		fn(f, server)
	})
}

// open makes a handle of the family with a client and a wire of its own. It is
// closed, over a wire that works again, when the test ends.
func (f *fixture) open(mod ...func(*semaphore.Config)) (*semaphore.Semaphore, *redistest.Wire) {
	f.Helper()
	w := &redistest.Wire{}
	return f.openOn(f.connect(w), w, mod...), w
}

// openVia is open through a proxy.
func (f *fixture) openVia(p *redistest.Proxy, mod ...func(*semaphore.Config)) *semaphore.Semaphore {
	f.Helper()
	return f.openOn(p.Client(), &redistest.Wire{}, mod...)
}

func (f *fixture) openOn(rdb redis.UniversalClient, w *redistest.Wire, mod ...func(*semaphore.Config)) *semaphore.Semaphore {
	f.Helper()
	cfg := semaphore.Config{Name: f.name, Limit: 1}
	for _, m := range mod {
		m(&cfg)
	}
	rdb.AddHook(w)
	s, err := semaphore.New(rdb, cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		w.Heal()
		shut(f.T, s)
	})
	return s
}

func shut(t testing.TB, s *semaphore.Semaphore) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), redistest.Soon)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func limit(n int) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.Limit = n }
}

func ttl(d time.Duration) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.TTL = d }
}

// part is the documented name of one of the Redis keys of key.
func (f *fixture) part(key, part string) string {
	return fmt.Sprintf("leasehold:sem:{%s:%s}:%s", f.name, key, part)
}

// now is the server's clock in ms. All targets run on this machine.
func now() float64 { return float64(time.Now().UnixMilli()) }

// held lists the permits of key that have not expired, with their expiries.
func (f *fixture) held(key string) map[string]float64 {
	f.Helper()
	all, err := f.rdb.ZRangeWithScores(context.Background(), f.part(key, "holders"), 0, -1).Result()
	if err != nil {
		f.Fatal(err)
	}
	live := map[string]float64{}
	for _, z := range all {
		if z.Score > now() {
			live[z.Member.(string)] = z.Score
		}
	}
	return live
}

// wantHeld fails the test unless n permits of key are held right now.
func (f *fixture) wantHeld(key string, n int) {
	f.Helper()
	if got := f.held(key); len(got) != n {
		f.Fatalf("%d permits are held, want %d: %v", len(got), n, got)
	}
}

// queued is the number of waiters of key.
func (f *fixture) queued(key string) int {
	f.Helper()
	n, err := f.rdb.ZCard(context.Background(), f.part(key, "queue")).Result()
	if err != nil {
		f.Fatal(err)
	}
	return int(n)
}

// take acquires n permits that are free.
func (f *fixture) take(s *semaphore.Semaphore, key string, n int) *semaphore.Lease {
	f.Helper()
	l, err := s.TryAcquireN(context.Background(), key, n)
	if err != nil {
		f.Fatalf("take %d: %v", n, err)
	}
	return l
}

// wait starts an AcquireN of n permits that has to queue, and returns when it
// does, or has ended already.
func (f *fixture) wait(ctx context.Context, s *semaphore.Semaphore, key string, n int) *waiting {
	f.Helper()
	before := f.queued(key)
	w := &waiting{t: f.T, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = s.AcquireN(ctx, key, n)
	}()
	redistest.Eventually(f, "a waiter in the queue", func() bool {
		select {
		case <-w.done: // where the machine stood still for a TTL
			return true
		default:
			return f.queued(key) > before
		}
	})
	return w
}

// waiting is an acquire under way.
type waiting struct {
	t     testing.TB
	done  chan struct{}
	lease *semaphore.Lease
	err   error
}

// got is the lease that the acquire ends with, soon.
func (w *waiting) got() *semaphore.Lease {
	w.t.Helper()
	redistest.Get(w.t, "a grant", w.done)
	if w.err != nil {
		w.t.Fatalf("the waiter ended with %v", w.err)
	}
	return w.lease
}

// failed is the error that the acquire ends with, soon.
func (w *waiting) failed() error {
	w.t.Helper()
	redistest.Get(w.t, "an error", w.done)
	if w.err == nil {
		w.t.Fatal("the waiter was granted")
	}
	return w.err
}

func release(t testing.TB, l *semaphore.Lease) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// subscribed says on how many inbox channels of that prefix somebody listens: a
// waiter does when its handle knows that it is queued.
func (f *fixture) subscribed(prefix string) (channels []string) {
	f.Helper()
	f.onEach(func(ctx context.Context, node redis.Cmdable) error {
		some, err := node.PubSubChannels(ctx, prefix+":inbox:*").Result()
		channels = append(channels, some...)
		return err
	})
	return channels
}

// onEach runs fn on every primary, one after the other.
func (f *fixture) onEach(fn func(ctx context.Context, node redis.Cmdable) error) {
	f.Helper()
	var mu sync.Mutex
	var err error
	if c, ok := f.rdb.(*redis.ClusterClient); ok {
		err = c.ForEachShard(context.Background(), func(ctx context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return fn(ctx, node)
		})
	} else {
		err = fn(context.Background(), f.rdb)
	}
	if err != nil {
		f.Fatal(err)
	}
}
