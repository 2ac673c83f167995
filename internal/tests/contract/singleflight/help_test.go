package singleflight_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/singleflight"
)

// group makes a group on rdb, of the test's own name where mod gives no other. It
// is closed when the test ends.
func group[T any](t testing.TB, rdb redis.UniversalClient, mod ...func(*singleflight.Config[T])) *singleflight.Group[T] {
	t.Helper()
	cfg := singleflight.Config[T]{Name: redistest.Name(t), TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	for _, m := range mod {
		if m != nil {
			m(&cfg)
		}
	}
	g, err := singleflight.New(rdb, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, g) })
	return g
}

// shut closes a group, soon.
func shut[T any](t testing.TB, g *singleflight.Group[T]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), redistest.Soon)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// fixture is one family on one target, and a client that looks at what is in
// Redis.
type fixture struct {
	*testing.T
	connect func(w *wire) redis.UniversalClient
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
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		f := newFixture(t, target)
		fn(f, redistest.NewProxy(t, f.addr))
	})
}

func newFixture(t *testing.T, target redistest.Target) *fixture {
	f := &fixture{T: t, rdb: target.Admin(t), name: redistest.Name(t)}
	f.connect = func(w *wire) redis.UniversalClient {
		return target.Client(t, func(o *redis.UniversalOptions) { o.Dialer = w.dialer(o.Dialer) })
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
// only when everybody waits: for what takes long or must be exact. synctest.Wait
// there says that all that was begun has come as far as it can.
func bubble(t *testing.T, fn func(f *fixture, server *miniredis.Miniredis)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() {
			if t.Failed() {
				time.Sleep(time.Minute) // what stopped the test half-way left things running
			}
		})
		server, client := redistest.Bubble(t)
		f := &fixture{T: t, rdb: client(), name: redistest.Name(t)}
		f.connect = func(w *wire) redis.UniversalClient {
			return client(func(o *redis.Options) { o.Dialer = w.dialer(o.Dialer) })
		}
		fn(f, server)
	})
}

// subBubble is bubble in a subtest.
func subBubble(t *testing.T, name string, fn func(f *fixture, server *miniredis.Miniredis)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, fn) })
}

// config changes the Config of a group of strings.
type config = func(*singleflight.Config[string])

// open makes a group of the family with a client and a wire of its own. It is
// closed, over a wire that works again, when the test ends.
func (f *fixture) open(mod ...config) (*singleflight.Group[string], *wire) {
	f.Helper()
	return openOf(f, mod...)
}

// openOf is open for values of any type.
func openOf[T any](f *fixture, mod ...func(*singleflight.Config[T])) (*singleflight.Group[T], *wire) {
	f.Helper()
	w := &wire{}
	rdb := f.connect(w)
	rdb.AddHook(w)
	g := openOn(f, rdb, mod...)
	f.Cleanup(w.heal)
	return g, w
}

// openVia is open through a proxy.
func (f *fixture) openVia(p *redistest.Proxy, mod ...config) *singleflight.Group[string] {
	f.Helper()
	return openOn(f, p.Client(), mod...)
}

// openOn is open with that client.
func openOn[T any](f *fixture, rdb redis.UniversalClient, mod ...func(*singleflight.Config[T])) *singleflight.Group[T] {
	f.Helper()
	named := func(c *singleflight.Config[T]) { c.Name = f.name }
	return group(f, rdb, append([]func(*singleflight.Config[T]){named}, mod...)...)
}

// part is the documented name of one of the Redis keys of key.
func (f *fixture) part(key, part string) string {
	return fmt.Sprintf("leasehold:flt:{%s:%s}:%s", f.name, key, part)
}

// queued is the number of processes that wait for a load of key.
func (f *fixture) queued(key string) int {
	f.Helper()
	n, err := f.rdb.ZCard(context.Background(), f.part(key, "queue")).Result()
	if err != nil {
		f.Fatal(err)
	}
	return int(n)
}

// onEach runs fn on every primary, one after the other.
func (f *fixture) onEach(fn func(ctx context.Context, node redis.Cmdable) error) {
	f.Helper()
	var mu sync.Mutex
	var err error
	if c, ok := f.rdb.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
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

// teach lets the servers know all scripts, so that none is sent twice.
func (f *fixture) teach() {
	f.Helper()
	f.onEach(func(ctx context.Context, node redis.Cmdable) error {
		for _, s := range []string{
			luascripts.LoadsEnter(), luascripts.LoadsAsk(), luascripts.LoadsLeave(), luascripts.LoadsRenew(), luascripts.LoadsPublish(),
			luascripts.LoadsInvalidate(), luascripts.LoadsInspect(),
		} {
			if err := node.ScriptLoad(ctx, s).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// inspect is what is known of key.
func inspect[T any](t testing.TB, g *singleflight.Group[T], key string) singleflight.State {
	t.Helper()
	s, err := g.Inspect(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
