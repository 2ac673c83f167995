package singleflight

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// caller is one call that waits for a flight.
type caller[T any] struct {
	ctx  context.Context // whose values a load that it starts gets
	load manyFn[T]
	got  chan outcome[T] // of one

	// Guarded by the group's lock.
	flight *flight[T]
	order  int
	// early: it came before its flight last asked Redis, and may so have any
	// load's result that Redis answered with. Who came later may not: between
	// that answer and its coming somebody may have invalidated the load.
	early bool
}

// outcome is what a caller's flight came to.
type outcome[T any] struct {
	errs   []error           // it failed
	raise  *raised           // the caller's own loader panicked
	own    bool              // value is the caller's own loader's
	value  T                 //
	env    envelope.Envelope // else: to be decoded
	source Source
	age    time.Duration
}

// tell gives callers their outcome. None is told twice: who is told has been
// taken out of its flight before.
func tell[T any](all []*caller[T], o outcome[T]) {
	for _, c := range all {
		c.got <- o
	}
}

// flight is one attempt of this process to get the value of a key: by loading it
// or by waiting for who does. Callers join it while it is the group's flight of
// that key.
type flight[T any] struct {
	g      *Group[T]
	t      target
	look   engine.Look
	wait   bool            // else it only loads if nobody does
	ctx    context.Context // ends when nobody needs it any more, before it leads
	cancel context.CancelFunc
	lease  lease.Lease
	mark   string // uncoordinated, since the key has this mark (docs/architecture.md)

	// Guarded by the group's lock.
	callers    map[*caller[T]]struct{}
	orders     int
	background bool // goes on without a caller
	early      bool // it was started before the TTL was over
	arrived    bool // its launch knows its first answer
	load       *load[T]
	held       bool // load runs under lease
}

// joiner is a key that a call wants, and what it saw of it.
type joiner[T any] struct {
	t    target
	look engine.Look
}

// join makes a caller for each key: of the group's flight of that key, or of a
// new one, all of which are launched together.
func (g *Group[T]) join(all []joiner[T], ctx context.Context, fn manyFn[T]) ([]*caller[T], []error) {
	callers := make([]*caller[T], len(all))
	var fresh []*flight[T]
	g.mu.Lock()
	if g.closed.Load() {
		g.mu.Unlock()
		return nil, []error{leasehold.ErrClosed}
	}
	for i, j := range all {
		f := g.flights[j.t.key]
		if f == nil {
			f = g.newFlight(j, true)
			g.flights[j.t.key] = f
			fresh = append(fresh, f)
		}
		callers[i] = &caller[T]{ctx: ctx, load: fn, got: make(chan outcome[T], 1)}
		f.add(callers[i])
	}
	g.launch(fresh, ctx, fn)
	g.mu.Unlock()
	return callers, nil
}

// refresh starts flights that nobody waits for, of keys that have none, and that
// load only if nobody else does.
func (g *Group[T]) refresh(all []joiner[T], ctx context.Context, fn manyFn[T], early bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return
	}
	var fresh []*flight[T]
	for _, j := range all {
		if until, ok := g.quiet[j.t.key]; ok {
			if now.Before(until) {
				continue
			}
			delete(g.quiet, j.t.key)
		}
		if g.flights[j.t.key] == nil {
			f := g.newFlight(j, false)
			f.background, f.early = true, early
			g.flights[j.t.key] = f
			fresh = append(fresh, f)
		}
	}
	g.launch(fresh, ctx, fn)
}

// hush keeps refreshes of a key away from Redis for a while. Called with the
// lock.
func (g *Group[T]) hush(key string, d time.Duration) {
	now := time.Now()
	if len(g.quiet) > 1000 {
		for k, until := range g.quiet {
			if now.After(until) {
				delete(g.quiet, k)
			}
		}
	}
	g.quiet[key] = now.Add(d)
}

// newFlight is called with the lock.
func (g *Group[T]) newFlight(j joiner[T], wait bool) *flight[T] {
	f := &flight[T]{g: g, t: j.t, look: j.look, wait: wait, callers: map[*caller[T]]struct{}{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	g.live[f] = struct{}{}
	return f
}

// add is called with the lock.
func (f *flight[T]) add(c *caller[T]) {
	f.orders++
	c.flight, c.order, c.early = f, f.orders, false
	f.callers[c] = struct{}{}
}

// close keeps newcomers from joining. Called with the lock.
func (f *flight[T]) close() {
	if f.g.flights[f.t.key] == f {
		delete(f.g.flights, f.t.key)
	}
	if f.g.locals[f.t.key] == f {
		delete(f.g.locals, f.t.key)
	}
}

// takeCallers ends the flight for its callers, of which none may join any more.
// Called with the lock.
func (f *flight[T]) takeCallers() []*caller[T] {
	f.close()
	all := make([]*caller[T], 0, len(f.callers))
	for c := range f.callers {
		all = append(all, c)
	}
	clear(f.callers)
	delete(f.g.live, f)
	return all
}

// first is the caller who has waited longest; nil where there is none. Called
// with the lock.
func (f *flight[T]) first() *caller[T] {
	var first *caller[T]
	for c := range f.callers {
		if first == nil || c.order < first.order {
			first = c
		}
	}
	return first
}

// asked is called before Redis is asked on behalf of the callers there are.
func (f *flight[T]) asked() {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	for c := range f.callers {
		c.early = true
	}
}

// leave takes a caller out of its flight. With the last one the flight stops
// waiting, or goes on loading for as long as anybody waits elsewhere; but not
// where the caller has merely been served otherwise: then it goes on.
func (g *Group[T]) leave(c *caller[T], served bool) {
	g.mu.Lock()
	f := c.flight
	if _, ok := f.callers[c]; !ok {
		g.mu.Unlock()
		return
	}
	delete(f.callers, c)
	if served {
		f.background = true
	}
	alone := len(f.callers) == 0 && !f.background
	if alone {
		f.close() // who comes now starts a flight of its own, which waits for this one
	}
	held := f.held
	if alone && f.load != nil && !held {
		f.load.end(f, errUnwanted)
	}
	g.mu.Unlock()
	switch {
	case !alone:
	case held:
		f.lease.Unwatch()
	default:
		f.cancel()
	}
}

var (
	errUnwanted = errors.New("nobody waits for it any more")
	errLoading  = errors.New("a loader has not returned yet")
)

// again puts callers whose flight came to nothing that they may have into a new
// flight. There they come before Redis is asked, so that they meet no third one.
func (g *Group[T]) again(f *flight[T], look engine.Look, callers []*caller[T]) {
	if len(callers) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		tell(callers, outcome[T]{errs: []error{leasehold.ErrClosed}})
		return
	}
	n := g.newFlight(joiner[T]{t: f.t, look: look}, true)
	n.background = f.background && f.wait
	if g.flights[f.t.key] == nil {
		g.flights[f.t.key] = n
	}
	for _, c := range byOrder(callers) {
		n.add(c)
	}
	first := n.first()
	g.launch([]*flight[T]{n}, first.ctx, first.load)
}
