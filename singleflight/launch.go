package singleflight

import (
	"context"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/internal/lease"
)

// launch is a set of flights that ask Redis together, so that one call of the
// loader serves all that this process is to load.
type launch[T any] struct {
	g   *Group[T]
	ctx context.Context // of who launched it
	fn  manyFn[T]

	mu      sync.Mutex
	pending int
	ready   []*flight[T]
	place   map[*flight[T]]int // in the order in which they were asked for
}

// launch is called with the lock.
func (g *Group[T]) launch(flights []*flight[T], ctx context.Context, fn manyFn[T]) {
	if len(flights) == 0 {
		return
	}
	l := &launch[T]{g: g, ctx: ctx, fn: fn, pending: len(flights), place: map[*flight[T]]int{}}
	for i, f := range flights {
		l.place[f] = i
	}
	g.active.Go(func() {
		attempts := make([]lease.Attempt, len(flights))
		for i, f := range flights {
			attempts[i] = lease.Attempt{
				Op: "load", Key: f.t.key, Permits: 1, Limit: 1, Wait: f.wait, Look: f.look,
				Parent: context.Background(), Asked: f.asked, Waits: func() { l.arrive(f, false) },
			}
		}
		joinings := g.m.Join(context.Background(), attempts...)
		for i, f := range flights[1:] {
			g.active.Go(func() { f.run(joinings[i+1], l) })
		}
		flights[0].run(joinings[0], l)
	})
}

// arrive says what became of a flight's first answer; with the last one, what is
// to be loaded is. A flight that is to load later is loaded by itself.
func (l *launch[T]) arrive(f *flight[T], loads bool) {
	l.mu.Lock()
	var now []*flight[T]
	switch {
	case !f.arrived:
		f.arrived = true
		if l.pending--; loads {
			l.ready = append(l.ready, f)
		}
		if l.pending == 0 {
			now = l.ready
			slices.SortFunc(now, func(a, b *flight[T]) int { return l.place[a] - l.place[b] })
		}
	case loads:
		now = []*flight[T]{f}
	}
	l.mu.Unlock()
	switch {
	case len(now) == 0:
	case loads:
		l.g.newLoad(now, l).run()
	default:
		l.g.active.Go(l.g.newLoad(now, l).run) // f itself waits for another's load
	}
}
