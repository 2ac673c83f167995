package singleflight

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// flight is one attempt of this process to get the value of a key, either by loading it or by
// waiting for another process's load. Requests join it while it is the group's flight of that
// key. It ends in one of four ways: its load is published (publish.go), Redis answers
// otherwise or cannot be asked (wait.go), its last request leaves, or Close takes its requests.
type flight[T any] struct {
	g *Group[T]
	target
	rejected loads.Rejected  // the cached entry that Redis is to treat as absent
	wait     bool            // false: it loads only if no other process does
	ctx      context.Context // of the wait; ends when no request needs the flight any more
	cancel   context.CancelFunc
	lease    lease.Lease // held once leased is set

	// tooLargeMark is the mark, in place of a remembered failure, that made this flight load
	// without coordination because the key's values are too large; "": there is none. The
	// flight's goroutine sets it before its load starts.
	tooLargeMark string

	alone bool // its one request can use no other's result

	// Guarded by the group's lock.
	requests   map[*request[T]]struct{}
	joined     int   // how many requests have joined so far
	background bool  // it goes on without a request
	called     int64 // the number of its loader's call in the group; 0: it was not called
	answered   bool  // Redis has answered, or cannot be asked
	granted    bool  // the first answer was the right to load
	ended      error // why its load ended for it before it returned; nil: it did not

	// Of a local flight; see local.go. Guarded by the group's lock.
	next     *flight[T]  // parked behind this one; nil: none
	parkedBy *request[T] // the first one of the call that parked it; its flights load together

	// These are set under the group's lock, before the load starts. They do not change
	// afterwards, so the load reads them without the lock.
	isEarlyRefresh bool        // it was started before the TTL was over
	leased         bool        // the load runs under lease
	load           *load[T]    // nil: it does not load yet
	own            *request[T] // its first request, if the loader of that one is called: its caller gets the value itself; nil: none
}

// join puts each request into the group's flight of its key, or into a new flight. New flights are
// launched together, for by: its call wants all of their keys. Called with the lock; the group is open.
func (g *Group[T]) join(all []*request[T], by *request[T]) {
	var created []*flight[T]
	for _, q := range all {
		f := g.flights[q.key]
		if f == nil {
			f = g.newFlight(q.target, q.rejected, true)
			g.flights[q.key] = f
			created = append(created, f)
		}
		f.add(q)
	}
	g.launch(created, by) // if there are any
}

// refresh starts flights without requests, for keys that have no flight. They load only if no
// other process does. The requests in all tell what to load, and with which loader.
func (g *Group[T]) refresh(all []*request[T], early bool) {
	if len(all) == 0 {
		return
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return
	}
	var created []*flight[T]
	for _, q := range all {
		if now.Before(g.refreshPausedUntil[q.key]) {
			continue
		}
		if g.flights[q.key] == nil {
			f := g.newFlight(q.target, q.rejected, false)
			f.background, f.isEarlyRefresh = true, early
			g.flights[q.key] = f
			created = append(created, f)
		}
	}
	if len(created) > 0 {
		all[0].above = nil // no load waits for this one
		g.launch(created, all[0])
	}
}

// refreshPause is how long a process offers no refresh of a key after a refresh failed, and at
// most after it was told that another process rebuilds the value.
const refreshPause = 100 * time.Millisecond

// pauseIfRefresh pauses refreshes of the key, so that a refresh that failed is not repeated at
// once. It reports whether the flight is a refresh, or became one.
func (f *flight[T]) pauseIfRefresh() bool {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if f.background {
		f.g.pauseRefresh(f.key, refreshPause)
	}
	return f.background
}

// pauseRefresh keeps refreshes of a key from asking Redis for the time d, which is at most
// refreshPause. Called with the lock.
func (g *Group[T]) pauseRefresh(key string, d time.Duration) {
	now := time.Now()
	if now.After(g.sweepPauses) { // so there are never more than those of two refreshPauses
		maps.DeleteFunc(g.refreshPausedUntil, func(_ string, until time.Time) bool { return !now.Before(until) })
		g.sweepPauses = now.Add(refreshPause)
	}
	if until := now.Add(d); until.After(g.refreshPausedUntil[key]) {
		g.refreshPausedUntil[key] = until
	}
}

// newFlight returns a new flight without requests. Called with the lock.
func (g *Group[T]) newFlight(t target, rejected loads.Rejected, wait bool) *flight[T] {
	f := &flight[T]{g: g, target: t, rejected: rejected, wait: wait, requests: map[*request[T]]struct{}{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	g.live[f] = struct{}{}
	return f
}

// add puts a request into the flight. Called with the lock.
func (f *flight[T]) add(q *request[T]) {
	if q.outcomes == nil {
		q.outcomes = make(chan outcome[T], 1)
	}
	f.joined++
	q.flight, q.place, q.joinedBeforeAsk = f, f.joined, false
	f.requests[q] = struct{}{}
}

// closeJoining keeps further requests from joining. Called with the lock.
func (f *flight[T]) closeJoining() {
	if f.g.flights[f.key] == f {
		delete(f.g.flights, f.key)
	}
	if f.g.localFlights[f.key] == f {
		delete(f.g.localFlights, f.key)
		f.g.free(f)
	}
}

// takeRequests removes all requests from the flight and returns them in their order. No
// request can join any more. Called with the lock.
func (f *flight[T]) takeRequests() []*request[T] {
	f.closeJoining()
	all := slices.SortedFunc(maps.Keys(f.requests), func(a, b *request[T]) int { return a.place - b.place })
	clear(f.requests)
	delete(f.g.live, f)
	return all
}

// first returns the request that has waited longest, or nil if there is none. Called with the
// lock.
func (f *flight[T]) first() *request[T] {
	if len(f.requests) == 0 {
		return nil
	}
	return slices.MinFunc(slices.Collect(maps.Keys(f.requests)), func(a, b *request[T]) int { return a.place - b.place })
}

// unwanted reports whether nothing in this process needs the flight. Called with the lock.
func (f *flight[T]) unwanted() bool { return len(f.requests) == 0 && !f.background }

// leave removes a request from its flight, because its caller has left. When the last request
// leaves, a flight that waits or loads without a lease stops, and a flight that loads under a
// lease goes on only as long as another process waits. If the caller was served a stale value
// (served), the flight goes on without requests.
func (q *request[T]) leave(served bool) {
	g := q.g
	g.mu.Lock()
	f := q.flight
	q.left = true
	if served {
		f.background = true
	}
	if _, in := f.requests[q]; !in { // it is answered now, or starts anew
		g.mu.Unlock()
		return
	}
	delete(f.requests, q)
	unwanted, leased := f.unwanted(), f.leased
	if unwanted {
		f.closeJoining() // a later request starts a new flight, which waits for this one
		switch {
		case f.load == nil:
		case !leased:
			f.load.endFor(f, loads.ErrUnwanted)
		case f.load.running.IsWaiting() && !f.load.hasCallers():
			// The load waits for another load, and would keep it alive. That one may in turn
			// wait for this load.
			f.load.endForAll(loads.ErrUnwanted)
		}
	}
	g.mu.Unlock()
	switch {
	case !unwanted:
	case leased:
		loads.Unwatch(&f.lease)
	default:
		f.cancel()
	}
}

// startAnew puts requests that got no usable result from this flight into a new flight. They
// join it before it asks Redis, so its answer serves them and they need no third flight. A
// request whose caller has left meanwhile does not join.
func (f *flight[T]) startAnew(all []*request[T]) {
	if len(all) == 0 {
		return
	}
	g := f.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		answer(all, outcome[T]{errs: []error{leasehold.ErrClosed}})
		return
	}
	slices.SortFunc(all, func(a, b *request[T]) int { return a.place - b.place })
	by := all[0]
	all = slices.DeleteFunc(all, func(q *request[T]) bool { return q.left })
	background := f.background && f.wait // a refresh is not repeated
	if len(all) == 0 && !background {
		return
	}
	n := g.newFlight(f.target, f.rejected, true)
	n.background = background
	if g.flights[f.key] == nil {
		g.flights[f.key] = n
	}
	for _, q := range all {
		n.add(q)
	}
	g.launch([]*flight[T]{n}, by)
}
