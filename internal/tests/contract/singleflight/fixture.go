// Package singleflight holds what the documentation of the package singleflight
// promises, as tests on every kind of server.
package singleflight

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/singleflight"
)

// group makes a group on rdb, of the test's own name where mod gives no other. It is closed when the test ends.
func group[T any](t testing.TB, rdb redis.UniversalClient, mod ...func(*singleflight.Config[T])) *singleflight.Group[T] {
	t.Helper()
	cfg := singleflight.Config[T]{Name: redistest.Name(t), TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	for _, m := range mod {
		if m != nil {
			m(&cfg)
		}
	}
	g := redistest.Must(singleflight.New(rdb, cfg))(t)
	t.Cleanup(func() { harness.Close(t, g) })
	return g
}

// fixture is one family of cached values on one target. A bubble has the server, too.
type fixture struct {
	*harness.Fixture
	server *miniredis.Miniredis
}

// clientPatience is how long a client waits for an answer.
const clientPatience = 3 * time.Second

func each(t *testing.T, fn func(f *fixture)) {
	harness.Each(t, harness.Loads, func(f *harness.Fixture) { fn(&fixture{Fixture: f}) })
}

func some(t *testing.T, fn func(f *fixture)) {
	harness.Some(t, harness.Loads, func(f *harness.Fixture) { fn(&fixture{Fixture: f}) })
}

func withProxy(t *testing.T, fn func(f *fixture, p *redistest.Proxy)) {
	harness.WithProxy(t, harness.Loads, func(f *harness.Fixture, p *redistest.Proxy) { fn(&fixture{Fixture: f}, p) })
}

func newFixture(t *testing.T, target redistest.Target) *fixture {
	return &fixture{Fixture: harness.New(t, harness.Loads, target)}
}

func bubble(t *testing.T, fn func(f *fixture)) {
	t.Helper()
	harness.Bubble(t, harness.Loads, func(f *harness.Fixture, server *miniredis.Miniredis) { fn(&fixture{f, server}) })
}

// subBubble is bubble in a subtest.
func subBubble(t *testing.T, name string, fn func(f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, fn) })
}

// config changes the Config of a group of strings.
type config = func(*singleflight.Config[string])

// open makes a group of the family with a client and a wire of its own. It is
// closed, over a wire that works again, when the test ends.
func (f *fixture) open(mod ...config) (*singleflight.Group[string], *harness.Wire) {
	f.Helper()
	return openOf(f, mod...)
}

// two makes two groups, as of two processes.
func (f *fixture) two(mod ...config) (g, other *singleflight.Group[string]) {
	f.Helper()
	g, other, _ = f.pair(mod...)
	return g, other
}

// pair is two with the wire of the first one.
func (f *fixture) pair(mod ...config) (g, other *singleflight.Group[string], w *harness.Wire) {
	f.Helper()
	g, w = f.open(mod...)
	other, _ = f.open(mod...)
	return g, other, w
}

// twoOf is two for values of any type.
func twoOf[T any](f *fixture) (g, other *singleflight.Group[T]) {
	f.Helper()
	g, _ = openOf[T](f)
	other, _ = openOf[T](f)
	return g, other
}

// openOf is open for values of any type.
func openOf[T any](f *fixture, mod ...func(*singleflight.Config[T])) (*singleflight.Group[T], *harness.Wire) {
	f.Helper()
	w := &harness.Wire{Patience: clientPatience}
	rdb := f.Connect(w)
	rdb.AddHook(w)
	g := openOn(f, rdb, mod...)
	f.Cleanup(w.Heal)
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
	named := func(c *singleflight.Config[T]) { c.Name = f.Family }
	return group(f, rdb, append([]func(*singleflight.Config[T]){named}, mod...)...)
}

// teach lets the servers know all scripts, so that none is sent twice.
func (f *fixture) teach() {
	f.Helper()
	f.OnEachPrimary(func(ctx context.Context, node redis.Cmdable) error {
		for _, s := range []string{
			luascripts.LoadsEnter(), luascripts.LoadsAsk(), luascripts.LoadsLeave(), luascripts.LoadsRenew(), luascripts.LoadsPublish(),
			luascripts.LoadsInvalidate(), luascripts.LoadsPut(), luascripts.LoadsInspect(),
			luascripts.LoadsNearRead(), luascripts.LoadsNearTell(), luascripts.LoadsNearLeave(),
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
	return redistest.Must(g.Inspect(context.Background(), key))(t)
}

// within is a ctx that ends after d.
func (f *fixture) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), d)
	f.Cleanup(cancel)
	return ctx
}

// peekErr is the error of a Peek.
func peekErr[T any](ctx context.Context, g *singleflight.Group[T], key string) error {
	_, _, err := g.Peek(ctx, key)
	return err
}
