package singleflight

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

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
		return "", errTestOver
	}
}

var errTestOver = errors.New("the test is over")

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
