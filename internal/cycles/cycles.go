// Package cycles knows which running loads of this process wait for which keys, so that a wait
// which would close a cycle is refused. It spans all groups and handles of the process. A ctx
// carries the loads that it runs under.
package cycles

import (
	"context"
	"sync"
)

// Key identifies a cached value, on whichever handle.
type Key struct {
	Client any    // comparable
	Value  string // its name in Redis
}

type Load struct {
	keys          []Key
	endIfUnwanted func()

	// Guarded by graph.mu.
	ended bool
	waits map[Key]int // the keys that its loader waits for now, and how often
}

var graph = struct {
	mu    sync.Mutex // no other lock is taken while it is held
	loads map[Key]map[*Load]struct{}
}{loads: map[Key]map[*Load]struct{}{}}

// Above is carried by a loader's ctx: the load that the loader belongs to, and the loads
// from which that load was called.
type Above struct {
	load  *Load
	above *Above
}

type aboveKey struct{}

func Of(ctx context.Context) *Above {
	above, _ := ctx.Value(aboveKey{}).(*Above)
	return above
}

// Begin adds a load of keys, which was called under the loads above, to the graph. endIfUnwanted
// ends it if it has no callers in this process. Begin returns the ctx for the loader. It calls no
// method of ctx, which is the caller's: locks may be held.
func Begin(ctx context.Context, above *Above, keys []Key, endIfUnwanted func()) (context.Context, *Load) {
	r := &Load{keys: keys, endIfUnwanted: endIfUnwanted, waits: map[Key]int{}}
	graph.mu.Lock()
	defer graph.mu.Unlock()
	for _, k := range r.keys {
		if graph.loads[k] == nil {
			graph.loads[k] = map[*Load]struct{}{}
		}
		graph.loads[k][r] = struct{}{}
	}
	return context.WithValue(ctx, aboveKey{}, &Above{r, above}), r
}

// End removes the load from the graph: nothing waits for its result any more.
func (r *Load) End() {
	graph.mu.Lock()
	defer graph.mu.Unlock()
	r.ended = true
	for _, k := range r.keys {
		if delete(graph.loads[k], r); len(graph.loads[k]) == 0 {
			delete(graph.loads, k)
		}
	}
}

// IsWaiting reports whether the load's loader waits for another load.
func (r *Load) IsWaiting() bool {
	graph.mu.Lock()
	defer graph.mu.Unlock()
	return len(r.waits) > 0
}

// IsOwnKey reports whether k is loaded by a load that the caller runs under and that still
// waits for the caller. It may not wait any more, because its own callers may have been served
// a stale value or may have left.
func (a *Above) IsOwnKey(k Key) bool {
	if a == nil {
		return false
	}
	graph.mu.Lock()
	defer graph.mu.Unlock()
	for r := range graph.loads[k] {
		if a.has(r) && r.waitsFor(a.load, map[*Load]bool{}) {
			return true
		}
	}
	return false
}

func (a *Above) has(r *Load) bool {
	for ; a != nil; a = a.above {
		if a.load == r {
			return true
		}
	}
	return false
}

// Wait records that a call under these loads waits for k, until done is called. ok is false if
// the call's own load loads k, or if a load of k waits for it. Then the call must not wait. A
// cycle is always closed by the wait that comes last, so it is enough to check at each wait.
func (a *Above) Wait(k Key) (done func(), ok bool) {
	if a == nil {
		return func() {}, true
	}
	r := a.load
	graph.mu.Lock()
	if r.ended { // the ctx is used after its load ended
		graph.mu.Unlock()
		return func() {}, true
	}
	if anyWaitsFor(k, r, map[*Load]bool{}) {
		graph.mu.Unlock()
		return nil, false
	}
	r.waits[k]++
	graph.mu.Unlock()
	// A load without callers must not keep other loads alive. If its last caller leaves from
	// here on, leave finds that this load waits.
	r.endIfUnwanted()
	return func() {
		graph.mu.Lock()
		defer graph.mu.Unlock()
		if r.waits[k]--; r.waits[k] == 0 {
			delete(r.waits, k)
		}
	}, true
}

// waitsFor reports whether r is other, or waits for it, directly or through other loads.
// Called with the lock.
func (r *Load) waitsFor(other *Load, seen map[*Load]bool) bool {
	if r == other || seen[r] {
		return r == other
	}
	seen[r] = true
	for k := range r.waits {
		if anyWaitsFor(k, other, seen) {
			return true
		}
	}
	return false
}

// anyWaitsFor reports whether any load of k is other, or waits for it. Called with the lock.
func anyWaitsFor(k Key, other *Load, seen map[*Load]bool) bool {
	for r := range graph.loads[k] {
		if r.waitsFor(other, seen) {
			return true
		}
	}
	return false
}
