package singleflight

import (
	"context"
	"errors"

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
