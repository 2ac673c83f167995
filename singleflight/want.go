package singleflight

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/envelope"
)

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
