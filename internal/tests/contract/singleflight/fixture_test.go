// Package singleflight holds what the documentation of the package singleflight
// promises, as tests on every kind of server.
package singleflight

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }

// fixture is one family of cached values on one target.
type fixture struct{ *harness.Fixture }

// clientPatience is how long a client waits for an answer.
const clientPatience = 3 * time.Second

func each(t *testing.T, fn func(f *fixture))   { in(t, harness.Each, fn) }
func some(t *testing.T, fn func(f *fixture))   { in(t, harness.Some, fn) }
func bubble(t *testing.T, fn func(f *fixture)) { in(t, harness.Bubble, fn) }

func withProxy(t *testing.T, fn func(f *fixture, p *redistest.Proxy)) {
	in(t, harness.Single, func(f *fixture) { fn(f, redistest.NewProxy(f.T, f.Addr)) })
}

func in(t *testing.T, where func(*testing.T, string, func(*harness.Fixture)), fn func(f *fixture)) {
	t.Helper()
	where(t, harness.Loads, func(f *harness.Fixture) { fn(&fixture{f}) })
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
	return g, mustOpen(f, mod...), w
}

// mustOpen is open without the wire.
func mustOpen(f *fixture, mod ...config) *singleflight.Group[string] {
	f.Helper()
	g, _ := f.open(mod...)
	return g
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
	cfg := singleflight.Config[T]{Name: f.Family, TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	for _, m := range mod {
		if m != nil {
			m(&cfg)
		}
	}
	g := redistest.Must(singleflight.New(rdb, cfg))(f)
	f.Cleanup(func() { harness.Close(f, g) })
	return g
}

// teach lets the servers know all scripts, so that none is sent twice.
func (f *fixture) teach() {
	f.Helper()
	f.OnEach(func(ctx context.Context, node redis.Cmdable) error {
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

// hold is a NearFor so long that nothing passes by the end of a read lease alone.
const hold = time.Minute

// nearFor makes a group serve hot values from memory.
func nearFor(d time.Duration) config { return func(c *singleflight.Config[string]) { c.NearFor = d } }

// put stores a value.
func put(tb testing.TB, g *singleflight.Group[string], key, v string) {
	tb.Helper()
	redistest.WantErr(tb, g.Put(tb.Context(), key, v))
}

// invalidate drops keys, and returns how long that took.
func invalidate(tb testing.TB, g *singleflight.Group[string], keys ...string) time.Duration {
	tb.Helper()
	began := time.Now()
	redistest.WantErr(tb, g.Invalidate(tb.Context(), keys...))
	return time.Since(began)
}

// invalidating is an invalidate in another goroutine.
func invalidating(f *fixture, g *singleflight.Group[string], keys ...string) *harness.Call[time.Duration] {
	return harness.Start(f, func() (time.Duration, error) { return invalidate(f, g, keys...), nil })
}

// peek is what a group has of a key.
func peek(tb testing.TB, g *singleflight.Group[string], key string) singleflight.Result[string] {
	tb.Helper()
	r, _, err := g.Peek(tb.Context(), key)
	redistest.WantErr(tb, err)
	return r
}

// warm reads a key until it is served from memory.
func warm(tb testing.TB, g *singleflight.Group[string], key, want string) {
	tb.Helper()
	redistest.Eventually(tb, key+" in memory", func() bool {
		r := peek(tb, g, key)
		redistest.CheckNow(tb, r.Value == want, "read %+v; want %q", r, want)
		return r.Source == singleflight.Near
	})
}

// readers is the number of handles that are registered as readers of a key.
func (f *fixture) readers(key string) int {
	f.Helper()
	n := redistest.Must(f.RDB.ZCard(f.Context(), f.Part(key, "near")).Result())(f)
	return int(n)
}
