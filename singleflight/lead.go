package singleflight

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// load is one call of a loader, for one flight or several.
type load[T any] struct {
	g       *Group[T]
	fn      manyFn[T]
	flights []*flight[T]
	keys    []string
	ctx     context.Context
	cancel  context.CancelCauseFunc

	// Guarded by the group's lock.
	running map[*flight[T]]struct{} // for which it goes on
	firsts  map[*flight[T]]*caller[T]
}

// raised is a loader's panic, or its call of runtime.Goexit.
type raised struct {
	value  any
	stack  []byte
	goexit bool
}

func (r *raised) text() string {
	if r.goexit {
		return "the loader called runtime.Goexit"
	}
	return crossing(fmt.Sprintf("the loader panicked: %v", r.value))
}

// loaded is what a loader's call came to.
type loaded[T any] struct {
	values map[string]T
	ttls   map[string]time.Duration // of values
	err    error
	raised *raised
	took   time.Duration
	unrun  error // why the loader was not called
}

// lead notes that a flight holds the lease. Whose last caller left meanwhile goes
// on only as long as others wait.
func (g *Group[T]) lead(f *flight[T]) {
	g.mu.Lock()
	f.held = true
	alone := len(f.callers) == 0 && !f.background
	g.mu.Unlock()
	if alone {
		f.lease.Unwatch()
	}
}

// newLoad is the load of flights that hold their leases or do without.
func (g *Group[T]) newLoad(flights []*flight[T], l *launch[T]) *load[T] {
	d := &load[T]{
		g: g, fn: l.fn, flights: flights,
		running: map[*flight[T]]struct{}{}, firsts: map[*flight[T]]*caller[T]{},
	}
	values := l.ctx
	g.mu.Lock()
	for _, f := range flights {
		f.load = d
		d.keys = append(d.keys, f.t.key)
		d.running[f] = struct{}{}
		d.firsts[f] = f.first()
	}
	if first := d.firsts[flights[0]]; len(flights) == 1 && first != nil {
		values, d.fn = first.ctx, first.load
	}
	d.ctx, d.cancel = context.WithCancelCause(context.WithoutCancel(values))
	for _, f := range flights {
		if !f.held && len(f.callers) == 0 && !f.background {
			d.end(f, errUnwanted) // its last caller left just now
		}
	}
	if g.closed.Load() {
		d.cancel(leasehold.ErrClosed)
	}
	g.mu.Unlock()
	return d
}

// end ends the load for one flight; with the last one its ctx ends. Called with
// the lock.
func (d *load[T]) end(f *flight[T], why error) {
	f.close()
	delete(d.running, f)
	if len(d.running) == 0 && d.cancel != nil {
		d.cancel(why)
	}
}

// run loads, publishes and tells.
func (d *load[T]) run() {
	g := d.g
	for _, f := range d.flights {
		if !f.held {
			continue
		}
		held := f.lease.Context()
		stop := context.AfterFunc(held, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			d.end(f, context.Cause(held))
		})
		defer stop()
	}
	defer d.cancel(errDone)
	r := d.loadWithPermit()
	d.land(r)
}

var errDone = errors.New("the load is done")

// loadWithPermit calls the loader under one permit of MaxLoads, where there is
// such a bound. The lease is renewed meanwhile.
func (d *load[T]) loadWithPermit() loaded[T] {
	g := d.g
	if g.permit == nil {
		return d.call()
	}
	var p lease.Lease
	a := lease.Attempt{Op: "load", Permits: 1, Limit: g.cfg.MaxLoads, Wait: true}
	err := g.permit.Acquire(d.ctx, a, &p)
	switch {
	case err == nil:
		// Nobody waits for that: Redis may be away.
		defer g.active.Go(func() { _ = p.Release("load") })
	case d.ctx.Err() != nil || g.cfg.OnUnavailable != LoadLocally:
		return loaded[T]{unrun: errors.Join(inner(err)...)}
	}
	return d.call()
}

// call calls the loader, on a goroutine of its own: it may end that, and may go
// on for longer than LoadTimeout.
func (d *load[T]) call() loaded[T] {
	g := d.g
	g.count(d)
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
	done := make(chan loaded[T], 1)
	g.active.Go(func() {
		var r loaded[T]
		returned := false
		defer func() {
			if !returned {
				r.raised = &raised{goexit: true}
				if p := recover(); p != nil {
					r.raised = &raised{value: p, stack: debug.Stack()}
				}
			}
			r.took = time.Since(began)
			done <- r
		}()
		r.values, r.err = d.fn(ctx, slices.Clone(d.keys))
		if r.err == nil {
			// Here, where a panic of TTLFor is caught like one of the loader.
			r.ttls = map[string]time.Duration{}
			for _, key := range d.keys {
				if v, ok := r.values[key]; ok {
					r.ttls[key] = g.ttl(key, v)
				}
			}
		}
		returned = true
	})
	select {
	case r := <-done:
		return timedOut(ctx, r)
	case <-late:
		<-ctx.Done() // by its deadline, which is now, unless it ended before
		return loaded[T]{err: errLoadTimeout, took: time.Since(began)}
	}
}

// errLoadTimeout is ErrLoadTimeout as callers see it.
var errLoadTimeout = fmt.Errorf("%w (LoadTimeout)", ErrLoadTimeout)

// timedOut is what a loader's result counts as: an error that came because the
// bound was reached must not read as a deadline of the caller's own.
func timedOut[T any](ctx context.Context, r loaded[T]) loaded[T] {
	if r.err != nil && context.Cause(ctx) == ErrLoadTimeout && errors.Is(r.err, context.DeadlineExceeded) {
		r.err = errLoadTimeout
	}
	return r
}

// count counts a load.
func (g *Group[T]) count(d *load[T]) {
	g.counts.loads.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	refreshes, early := true, true
	for _, f := range d.flights {
		refreshes = refreshes && f.background
		early = early && f.early
	}
	if refreshes {
		g.counts.refreshes.Add(1)
		if early {
			g.counts.early.Add(1)
		}
	}
}
