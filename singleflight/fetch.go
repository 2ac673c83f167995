package singleflight

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/envelope"
)

// rounds bounds how often one call looks anew because what it was given could
// not be decoded.
const rounds = 4

// Do returns the value of key, 1 to 512 bytes of any kind: from the cache where
// it is fresh there, else from one call of load in the whole fleet, whose result
// all who wait for it share. Each caller gets a decoded value of its own.
//
// A hit costs one GET. A miss costs one script call more; who then loads
// publishes with a second one, which is complete before Do returns where Redis
// answers, and is waited for at most 1 s where not; who waits is sent the result
// and, where that is larger than 4 KiB, gets it with one GET a process.
//
// load runs on a goroutine of its own. Its ctx carries the values of the first
// caller's, and ends when nobody in the fleet waits any more, with
// leasehold.ErrLost when the process was cut off from Redis or its lease
// otherwise lost, after Config.LoadTimeout, and on Close. What load returns goes
// to all; [ErrNotFound] says that there is no such thing. Where load panics or
// calls [runtime.Goexit], so does Do in the first caller; all others get an
// error.
//
// ctx bounds the wait: when it ends, Do returns at once, while the load goes on
// for the others. The GET of a hit is bounded by the client's ReadTimeout.
//
// Errors: the loader's, or a *[RemoteError] with its text where it ran in another
// process or a failure is remembered; leasehold.ErrUnavailable where Redis can't
// be asked (see Config.OnUnavailable); leasehold.ErrClosed; ctx's own.
func (g *Group[T]) Do(ctx context.Context, key string, load func(ctx context.Context) (T, error)) (T, error) {
	r, err := g.fetch(ctx, "do", key, load)
	return r.Value, err
}

// Fetch is [Group.Do] that also says where the value is from and how old it is.
func (g *Group[T]) Fetch(ctx context.Context, key string, load func(ctx context.Context) (T, error)) (Result[T], error) {
	return g.fetch(ctx, "fetch", key, load)
}

func (g *Group[T]) fetch(ctx context.Context, op, key string, load func(ctx context.Context) (T, error)) (Result[T], error) {
	t, err := g.target(op, key)
	if err != nil {
		return Result[T]{}, err
	}
	if g.closed.Load() {
		return Result[T]{}, engine.Fail(pkg, op, t.Label, leasehold.ErrClosed)
	}
	w := want[T]{g: g, t: t, ctx: ctx, one: load}
	r, errs := w.run()
	if errs != nil {
		g.counts.errors.Add(1)
		return Result[T]{}, engine.Fail(pkg, op, t.Label, errs...)
	}
	g.counts.served(r.Source)
	return r, nil
}

// Peek returns what is cached of key, fresh or stale, and never loads. It reports
// false where there is nothing, or nothing that is still served; a remembered
// [ErrNotFound] is true and that error. One GET. Other errors:
// leasehold.ErrUnavailable, leasehold.ErrClosed, ctx's own.
func (g *Group[T]) Peek(ctx context.Context, key string) (Result[T], bool, error) {
	const op = "peek"
	t, err := g.target(op, key)
	if err != nil {
		return Result[T]{}, false, err
	}
	if g.closed.Load() {
		return Result[T]{}, false, engine.Fail(pkg, op, t.Label, leasehold.ErrClosed)
	}
	raw, v, errs := g.lookUp(ctx, t)
	switch {
	case errs != nil:
		return Result[T]{}, false, engine.Fail(pkg, op, t.Label, errs...)
	case v.fresh() && v.env.Kind == envelope.NotFound:
		return Result[T]{}, true, engine.Fail(pkg, op, t.Label, ErrNotFound)
	case v.fresh():
		if r, ok := g.serve(t, raw, v, Cached); ok {
			return r, true, nil
		}
	case v.stale(max(g.cfg.StaleFor, g.cfg.StaleIfError)):
		if r, ok := g.serve(t, raw, v, Stale); ok {
			return r, true, nil
		}
	}
	return Result[T]{}, false, nil
}

// lookUp reads the cache.
func (g *Group[T]) lookUp(ctx context.Context, t target) (string, view, []error) {
	if err := ctx.Err(); err != nil {
		return "", view{}, []error{err, leasehold.ErrUnavailable}
	}
	now, err := g.m.ServerTime(ctx)
	var raw string
	if err == nil {
		raw, err = g.rdb.Get(ctx, t.value).Result()
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", view{}, []error{ctx.Err(), leasehold.ErrUnavailable, err}
	}
	return raw, g.judge(t, raw, now, false), nil
}

// serve decodes a value that was found in the cache. False: it is none of T; it
// must then be named to the scripts by its sum.
func (g *Group[T]) serve(t target, raw string, v view, from Source) (Result[T], bool) {
	value, err := g.decode(v.env.Payload)
	if err != nil {
		g.undecodable(t, err)
		return Result[T]{}, false
	}
	return Result[T]{Value: value, Source: from, Age: v.age}, true
}

// manyFn is a loader of several keys.
type manyFn[T any] func(ctx context.Context, keys []string) (map[string]T, error)

// alone makes a loader of one key into one of several.
func alone[T any](load func(ctx context.Context) (T, error)) manyFn[T] {
	return func(ctx context.Context, keys []string) (map[string]T, error) {
		v, err := load(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]T{keys[0]: v}, nil
	}
}

// want is one caller's call for one key.
type want[T any] struct {
	g    *Group[T]
	t    target
	ctx  context.Context
	one  func(ctx context.Context) (T, error) // the loader, or
	many manyFn[T]

	stale bool      // it has read a stale value that it may be served
	old   Result[T] // that value
}

// load is the loader, of one key or several. On a hit nobody asks for it.
func (w *want[T]) load() manyFn[T] {
	if w.many != nil {
		return w.many
	}
	return alone(w.one)
}

// run looks, and joins a flight where there is nothing to be served.
func (w *want[T]) run() (Result[T], []error) {
	var last error
	for range rounds {
		r, v, done, errs := w.look()
		if done {
			return r, errs
		}
		c, errs := w.g.join([]joiner[T]{{t: w.t, look: v.look}}, w.ctx, w.load())
		if errs != nil {
			return Result[T]{}, errs
		}
		r, errs, again := w.await(c[0])
		if again == nil {
			return r, errs
		}
		last = again
	}
	return Result[T]{}, []error{last}
}

// look serves from the cache where it can: done. Else it leaves the stale value,
// if there is one, in w.
func (w *want[T]) look() (r Result[T], v view, done bool, errs []error) {
	raw, v, errs := w.g.lookUp(w.ctx, w.t)
	if errs != nil {
		r, errs = w.withoutRedis(errs)
		return r, v, true, errs
	}
	r, v, how, errs := w.judged(raw, v)
	switch how {
	case servedEarly, servedStale:
		w.g.refresh([]joiner[T]{{t: w.t, look: v.look}}, w.ctx, w.load(), how == servedEarly)
	}
	return r, v, how != notServed, errs
}

// how says how a look into the cache served.
type how int

const (
	notServed how = iota
	served
	servedEarly // and it should be refreshed before its TTL is over
	servedStale // and it should be refreshed
)

// judged serves a want by what a look into the cache showed, if it can. Else it
// leaves the stale value, if there is one, in w.
func (w *want[T]) judged(raw string, v view) (Result[T], view, how, []error) {
	g := w.g
	switch {
	case v.fresh() && v.env.Kind == envelope.NotFound:
		return Result[T]{}, v, served, []error{ErrNotFound}
	case v.fresh():
		if r, ok := g.serve(w.t, raw, v, Cached); ok {
			if g.early(v.env, v.age) {
				return r, v, servedEarly, nil
			}
			return r, v, served, nil
		}
		v.look.Seen = sum(raw)
	case v.stale(max(g.cfg.StaleFor, g.cfg.StaleIfError)):
		old, ok := g.serve(w.t, raw, v, Stale)
		if !ok {
			v.look.Seen = sum(raw)
			break
		}
		if v.stale(g.cfg.StaleFor) && g.cfg.SoftTimeout == 0 {
			return old, v, servedStale, nil
		}
		w.old, w.stale = old, true
	}
	return Result[T]{}, v, notServed, nil
}

// await waits for what the flight comes to. again is why the caller has to look
// anew.
func (w *want[T]) await(c *caller[T]) (r Result[T], errs []error, again error) {
	var soft <-chan time.Time
	if w.stale && w.g.cfg.SoftTimeout > 0 {
		timer := time.NewTimer(w.g.cfg.SoftTimeout)
		defer timer.Stop()
		soft = timer.C
	}
	select {
	case o := <-c.got:
		r, errs, again = w.g.take(w.t, o)
		if errs != nil && w.staleInstead(errs) {
			return w.old, nil, nil
		}
		return r, errs, again
	case <-soft:
		w.g.leave(c, true)
		return w.old, nil, nil
	case <-w.ctx.Done():
		w.g.leave(c, false)
		return Result[T]{}, []error{w.ctx.Err()}, nil
	}
}

// staleInstead reports whether the stale value is to be served for these errors:
// never for ErrNotFound, which is an answer, nor for what the caller did.
func (w *want[T]) staleInstead(errs []error) bool {
	err := errors.Join(errs...)
	return w.stale && !errors.Is(err, ErrNotFound) && !errors.Is(err, leasehold.ErrClosed)
}

// withoutRedis is what happens where the cache could not be read.
func (w *want[T]) withoutRedis(errs []error) (Result[T], []error) {
	if w.g.cfg.OnUnavailable != LoadLocally || w.ctx.Err() != nil {
		return Result[T]{}, errs
	}
	c, refused := w.g.joinLocally([]target{w.t}, w.ctx, w.load())
	if refused != nil {
		return Result[T]{}, refused
	}
	r, errs, again := w.await(c[0])
	if again != nil {
		errs = []error{again}
	}
	return r, errs
}

// take makes an outcome into what a call returns, on the caller's goroutine:
// there a panic of its own loader is raised again.
func (g *Group[T]) take(t target, o outcome[T]) (r Result[T], errs []error, again error) {
	switch {
	case o.raise != nil:
		if o.raise.goexit {
			runtime.Goexit()
		}
		panic(o.raise.value)
	case o.errs != nil:
		return r, o.errs, nil
	case o.own:
		return Result[T]{Value: o.value, Source: Loaded}, nil, nil
	}
	v, err := g.decode(o.env.Payload)
	if err != nil {
		g.undecodable(t, err)
		return r, nil, err
	}
	return Result[T]{Value: v, Source: o.source, Age: o.age}, nil, nil
}

func (c *counters) served(from Source) {
	switch from {
	case Cached:
		c.hits.Add(1)
	case Stale:
		c.stale.Add(1)
	case Loaded:
		c.loaded.Add(1)
	case Shared:
		c.shared.Add(1)
	}
}
