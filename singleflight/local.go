package singleflight

import (
	"context"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// joinLocally is join without Redis, for LoadLocally: a load of this process
// alone, which only callers join who could not reach Redis either.
func (g *Group[T]) joinLocally(all []target, ctx context.Context, fn manyFn[T]) ([]*caller[T], []error) {
	callers := make([]*caller[T], len(all))
	var fresh []*flight[T]
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return nil, []error{leasehold.ErrClosed}
	}
	for i, t := range all {
		f := g.locals[t.key]
		if f == nil {
			f = g.newFlight(joiner[T]{t: t, look: engine.Look{}}, true)
			f.arrived = true
			g.locals[t.key] = f
			fresh = append(fresh, f)
		}
		callers[i] = &caller[T]{ctx: ctx, load: fn, got: make(chan outcome[T], 1)}
		f.add(callers[i])
	}
	if len(fresh) > 0 {
		g.active.Go(func() { g.newLoad(fresh, &launch[T]{g: g, ctx: ctx, fn: fn}).run() })
	}
	return callers, nil
}
