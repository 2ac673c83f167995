// Package singleflight holds what the documentation of the package singleflight
// promises, as tests on every kind of server.
package singleflight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// withProxy runs fn with a proxy before a server that knows all scripts, so that none is sent twice.
func withProxy(t *testing.T, fn func(f *fixture, p *redistest.Proxy)) {
	in(t, harness.Single, func(f *fixture) {
		f.teach()
		fn(f, redistest.NewProxy(f.T, f.Addr))
	})
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

// two makes two groups, as of two processes, with the wire of the first one.
func (f *fixture) two(mod ...config) (g, other *singleflight.Group[string], w *harness.Wire) {
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
		for _, name := range luascripts.Names() {
			if err := node.ScriptLoad(ctx, luascripts.Whole(name)).Err(); err != nil {
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

// wantPeek checks what a group has of a key.
func wantPeek(tb testing.TB, g *singleflight.Group[string], key, value string, source singleflight.Source) {
	tb.Helper()
	r := peek(tb, g, key)
	redistest.CheckNow(tb, r.Value == value && r.Source == source, "of %s there is %+v; want %q, %v", key, r, value, source)
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

// heat has writer put a value, and g serve it from memory.
func heat(tb testing.TB, writer, g *singleflight.Group[string], key, value string) {
	tb.Helper()
	put(tb, writer, key, value)
	warm(tb, g, key, value)
}

// readers is the number of handles that are registered as readers of a key.
func (f *fixture) readers(key string) int {
	f.Helper()
	n := redistest.Must(f.RDB.ZCard(f.Context(), f.Part(key, "near")).Result())(f)
	return int(n)
}

// loader is what a Do calls.
type loader = func(ctx context.Context) (string, error)

// gives is a loader that returns v, and fails one that fails.
func gives(v string) loader { return func(context.Context) (string, error) { return v, nil } }

// errBoom is a failure of a loader.
var errBoom = errors.New("boom")

func fails(err error) loader { return func(context.Context) (string, error) { return "", err } }

// never is a loader that must not be called.
func never(t testing.TB) loader {
	return func(context.Context) (string, error) {
		t.Error("the loader was called")
		return "loaded although it was not to be", nil
	}
}

// origin is where values are loaded from: each load announces itself, and ends as the test says, or with the test.
type origin struct {
	t     testing.TB
	loads atomic.Int32
	began chan *loading
	over  chan struct{}
}

// loading is one load that runs.
type loading struct {
	t    testing.TB
	ctx  context.Context
	ends chan func() (string, error)
}

func newOrigin(t testing.TB) *origin {
	o := &origin{t: t, began: make(chan *loading, 1000), over: make(chan struct{})}
	t.Cleanup(func() { close(o.over) })
	return o
}

// load ignores its ctx.
func (o *origin) load(ctx context.Context) (string, error) { return o.loadUntil(ctx, nil) }

// obedient ends, with the ctx's cause, when its ctx does.
func (o *origin) obedient(ctx context.Context) (string, error) { return o.loadUntil(ctx, ctx.Done()) }

func (o *origin) loadUntil(ctx context.Context, end <-chan struct{}) (string, error) {
	l := &loading{t: o.t, ctx: ctx, ends: make(chan func() (string, error), 1)}
	o.loads.Add(1)
	o.began <- l
	select {
	case end := <-l.ends:
		return end()
	case <-end:
		return "", context.Cause(ctx)
	case <-o.over:
		return "", errors.New("the test is over")
	}
}

// next is the next load to begin, soon.
func (o *origin) next(t testing.TB) *loading {
	t.Helper()
	return redistest.Get(t, "a load to begin", o.began)
}

func (l *loading) returns(v string) { l.end(func() (string, error) { return v, nil }) }
func (l *loading) fails(err error)  { l.end(func() (string, error) { return "", err }) }
func (l *loading) does(end func())  { l.end(func() (string, error) { end(); return "", nil }) }

// end lets a load end. In a bubble all comes as far as it can then.
func (l *loading) end(how func() (string, error)) {
	l.ends <- how
	settle(l.t)
}

// pending is a Fetch under way.
type pending[T any] struct {
	*harness.Call[singleflight.Result[T]]
	t      testing.TB
	raised any // it panicked with this
}

// settle waits, in a bubble, until all that was begun has come as far as it can.
func settle(t testing.TB) {
	if f, ok := t.(*fixture); ok && f.Server != nil {
		synctest.Wait()
	}
}

// fetch starts a Fetch. In a bubble it lets it come as far as it can.
func fetch[T any](t testing.TB, ctx context.Context, g *singleflight.Group[T], key string, load func(context.Context) (T, error)) *pending[T] {
	p := &pending[T]{t: t}
	p.Call = harness.Start(t, func() (r singleflight.Result[T], err error) {
		defer func() {
			if p.raised = recover(); p.raised != nil {
				err = fmt.Errorf("it panicked: %v", p.raised)
			}
		}()
		return g.Fetch(ctx, key, load)
	})
	settle(t)
	return p
}

// begin starts a Fetch, and waits until its load has begun.
func begin(t testing.TB, ctx context.Context, g *singleflight.Group[string], key string, o *origin, load loader) (*pending[string], *loading) {
	t.Helper()
	p := fetch(t, ctx, g, key, load)
	return p, o.next(t)
}

// want fails the test unless the Fetch ends with that, soon.
func (p *pending[T]) want(value any, source singleflight.Source) {
	p.t.Helper()
	r := p.Got()
	redistest.CheckNow(p.t, any(r.Value) == value && r.Source == source, "%+v, want %v, %v", r, value, source)
}

// wantValue is want for a value from anywhere.
func (p *pending[T]) wantValue(value T) {
	p.t.Helper()
	p.want(value, p.Got().Source)
}

// wantStored checks that key has that value in Redis, and wantNothing that it has none.
func wantStored[T any](t testing.TB, g *singleflight.Group[T], key string, value T) {
	t.Helper()
	r, there, err := g.Peek(context.Background(), key)
	redistest.Check(t, err == nil && there && any(r.Value) == any(value), "%s: %+v, %v, %v; want %v", key, r, there, err, value)
}

func wantNothing[T any](t testing.TB, g *singleflight.Group[T], key string) {
	t.Helper()
	r, there, err := g.Peek(context.Background(), key)
	redistest.Check(t, err == nil && !there, "%s: %+v, %v, %v; want nothing", key, r, there, err)
}

// wantIdle checks that nothing of key is cached, remembered, loaded or waited for.
func wantIdle[T any](t testing.TB, g *singleflight.Group[T], key string) {
	t.Helper()
	redistest.Expect(t, inspect(t, g, key), singleflight.State{}, key+": %+v")
}

// loading starts a Fetch at an origin of its own, and waits until its load has begun.
func (f *fixture) loading(g *singleflight.Group[string], key string) (*pending[string], *loading, *origin) {
	f.Helper()
	o := newOrigin(f)
	p, l := begin(f, f.Context(), g, key, o, o.load)
	return p, l, o
}

// everyCall makes each call about a key, with a loader that must not be called, and returns the error of each.
func everyCall(t testing.TB, ctx context.Context, g *singleflight.Group[string], key string) map[string]error {
	return map[string]error{
		"do":         redistest.ErrorOf(g.Do(ctx, key, never(t))),
		"fetch":      redistest.ErrorOf(g.Fetch(ctx, key, never(t))),
		"do many":    redistest.ErrorOf(g.DoMany(ctx, []string{key}, nil)),
		"peek":       peekErr(ctx, g, key),
		"inspect":    redistest.ErrorOf(g.Inspect(ctx, key)),
		"invalidate": g.Invalidate(ctx, key),
		"put":        g.Put(ctx, key, "v"),
	}
}
