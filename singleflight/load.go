package singleflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/cycles"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// load is one call of a loader. It serves the flights that one call launched together and
// whose first answer from Redis was the right to load. A flight that is granted the right
// later gets a load of its own.
type load[T any] struct {
	g  *Group[T]
	by *request[T] // the request that launched the flights

	// Guarded by the group's lock, until the load starts.
	launched []*flight[T] // in the order in which the call named their keys
	asking   int          // how many of them have no first answer yet

	// Set when the load starts.
	flights []*flight[T]
	keys    []string
	loader  loader[T]
	running *cycles.Load    // this load in the graph of loads
	ctx     context.Context // of the loader
	cancel  context.CancelCauseFunc

	returned chan struct{} // closed when the loader has returned; nil: it was not called
}

// launch makes flights ask Redis, all in one round trip. Then one call of a loader, by's unless its caller has left,
// serves all keys that this process is to load. Called with the lock.
func (g *Group[T]) launch(flights []*flight[T], by *request[T]) {
	if len(flights) == 0 {
		return
	}
	d := &load[T]{g: g, by: by, launched: flights, asking: len(flights)}
	seats := make([]*call.Seat, len(flights)) // a single flight has no seat
	if len(flights) > 1 {
		seats = call.NewBatch(len(flights))
	}
	for i, f := range flights {
		g.active.Go(func() { f.run(d, seats[i]) })
	}
}

// answered records whether f is to load (granted). When the last of the flights that were
// launched together has its first answer, the loader is called. It is called on this goroutine
// if f itself is to load.
func (d *load[T]) answered(f *flight[T], granted bool) {
	g := d.g
	g.mu.Lock()
	var start []*flight[T]
	switch {
	case !f.answered:
		f.answered, f.granted = true, granted
		if d.asking--; d.asking == 0 {
			start = slices.DeleteFunc(d.launched, func(f *flight[T]) bool { return !f.granted })
		}
	case granted:
		d, start = &load[T]{g: g, by: d.by}, []*flight[T]{f}
	}
	g.mu.Unlock()
	switch {
	case len(start) == 0:
	case granted:
		d.run(start)
	default:
		g.active.Go(func() { d.run(start) }) // not here, because f itself waits for another load
	}
}

// holds records that a flight holds the lease of its load. If its last request has left
// meanwhile, the load goes on only as long as other processes wait.
func (f *flight[T]) holds() {
	f.g.mu.Lock()
	f.leased = true
	unwanted := f.unwanted()
	f.g.mu.Unlock()
	if unwanted {
		loads.Unwatch(&f.lease)
	}
}

// run loads for flights that hold their leases or need none, publishes the result and answers
// the requests.
func (d *load[T]) run(flights []*flight[T]) {
	g := d.g
	d.start(flights)
	for _, f := range d.flights {
		if !f.leased {
			continue
		}
		held := f.lease.Context()
		stop := context.AfterFunc(held, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			d.endFor(f, context.Cause(held))
		})
		defer stop()
	}
	defer d.cancel(errDone)
	p := d.callWithinMaxLoads()
	d.running.End()
	d.publish(p)
}

var errDone = errors.New("the load is done")

// start makes the ctx of the load, and ties the flights to the load.
func (d *load[T]) start(flights []*flight[T]) {
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	d.flights = flights
	for _, f := range flights {
		f.load, f.own = d, f.first()
		d.keys = append(d.keys, f.key)
	}
	// The call that launched them may have left since. Then another one that waits for all of them loads them.
	from := cmp.Or(flights[0].own, d.by)
	if slices.ContainsFunc(flights, func(f *flight[T]) bool { return cmp.Or(f.own, d.by).calling != from.calling }) {
		from = d.by // its loader alone knows all the keys
	}
	for _, f := range flights {
		if f.own != nil && f.own.calling != from.calling {
			f.own = nil // its loader is not called
		}
	}
	d.loader = from.load
	var named []cycles.Key
	for _, f := range flights {
		named = append(named, g.loadedKey(f.target))
	}
	ctx, running := cycles.Begin(context.WithoutCancel(from.ctx), from.above, named, d.endIfUnwanted)
	d.running = running
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	for _, f := range flights {
		if !f.leased && f.unwanted() {
			d.endFor(f, loads.ErrUnwanted) // its last request has just left
		}
	}
	if g.closed.Load() {
		d.endForAll(leasehold.ErrClosed) // its failure would be that of callers elsewhere
	}
}

// hasCallers reports whether anything in this process needs the load. Called with the lock.
func (d *load[T]) hasCallers() bool {
	return slices.ContainsFunc(d.flights, func(f *flight[T]) bool { return f.ended == nil && !f.unwanted() })
}

// endIfUnwanted ends the load if it has no callers in this process. Its leases are given back
// when the loader returns. Then a process that waits takes over.
func (d *load[T]) endIfUnwanted() {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	if !d.hasCallers() {
		d.endForAll(loads.ErrUnwanted)
	}
}

// endForAll ends the load for all flights. Called with the lock.
func (d *load[T]) endForAll(why error) {
	for _, f := range d.flights {
		d.endFor(f, why)
	}
}

// endFor ends the load for one flight. With the last flight, the ctx of the load ends. Called
// with the lock.
func (d *load[T]) endFor(f *flight[T], why error) {
	f.closeJoining()
	if f.ended == nil {
		f.ended = why
	}
	if !slices.ContainsFunc(d.flights, func(f *flight[T]) bool { return f.ended == nil }) {
		d.cancel(why)
	}
}

// callLoader calls the loader, which may run for longer than LoadTimeout.
func (d *load[T]) callLoader() product[T] {
	g := d.g
	d.count()
	replaced, ended := d.observed()
	ctx, cancel := d.ctx, context.CancelFunc(func() {})
	var late <-chan time.Time
	if g.cfg.LoadTimeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, g.cfg.LoadTimeout, ErrLoadTimeout)
		timer := time.NewTimer(g.cfg.LoadTimeout)
		defer timer.Stop()
		late = timer.C
	}
	defer cancel()
	began := time.Now()
	var p product[T]
	select {
	case p = <-d.produce(ctx, replaced):
	case <-late:
		<-ctx.Done() // its deadline is now, unless it ended earlier
		p = product[T]{failed: timedOut, took: time.Since(began)}
	}
	ended(p, ctx)
	return p
}

// errLoadTimeout is ErrLoadTimeout as callers see it.
var errLoadTimeout = fmt.Errorf("%w (LoadTimeout)", ErrLoadTimeout)

// count counts a load, and numbers the call of its loader.
func (d *load[T]) count() {
	g := d.g
	g.counts.loads.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	refreshes, early := true, true
	number := g.called.Add(1)
	for _, f := range d.flights {
		f.called = number
		refreshes = refreshes && f.background
		early = early && f.isEarlyRefresh
	}
	if refreshes {
		g.counts.refreshes.Add(1)
		if early {
			g.counts.early.Add(1)
		}
	}
}

// inner removes the words that say which call an error belongs to, because each caller adds
// its own.
func inner(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}
