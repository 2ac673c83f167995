package singleflight

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ErrLoadCycle says that a loader asked for a key that its own load would have to wait for.
// This is its own key, or a key whose load, in this process, already waits for it. Such a call
// fails at once and sends nothing.
//
// The cycle is recognised by the loader's ctx, so the loader must pass it on. It is recognised
// through every handle on the same cached values that has the same client. A cycle through
// other processes is not detected. Its loads end when the callers that wanted them have left.
var ErrLoadCycle = errors.New("the load would wait for itself")

// runningLoad is a running loader in the graph of loads, which spans all groups and handles of
// this process.
type runningLoad struct {
	keys []loadedKey
	// endIfUnwanted ends the load if it has no callers in this process.
	endIfUnwanted func()

	// Guarded by graph.mu.
	ended bool
	waits map[loadedKey]int // the keys that its loader waits for now, and how often
}

// loadedKey identifies a cached value, on whichever handle.
type loadedKey struct {
	client any    // clientID
	value  string // its name in Redis
}

func (g *Group[T]) loadedKey(t target) loadedKey { return loadedKey{g.clientID, t.value} }

// clientID returns a comparable value that is the same for handles with the same client. A
// client, or a type that embeds one, is identified by its Options, which no other client has.
// A type that hides its client is identified by itself. If it cannot be compared, each handle
// on it gets a clientID of its own.
func clientID(rdb redis.UniversalClient) any {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		if o := c.Options(); o != nil {
			return o
		}
	case interface{ Options() *redis.ClusterOptions }:
		if o := c.Options(); o != nil {
			return o
		}
	}
	if reflect.ValueOf(rdb).Comparable() {
		return rdb
	}
	return new(byte)
}

// graph holds the loads that run in this process.
var graph = struct {
	mu    sync.Mutex // no other lock is taken while it is held
	loads map[loadedKey]map[*runningLoad]struct{}
}{loads: map[loadedKey]map[*runningLoad]struct{}{}}

// loadsAbove is carried by a loader's ctx: the load that the loader belongs to, and the loads
// from which that load was called.
type loadsAbove struct {
	load  *runningLoad
	above *loadsAbove
}

type loadsAboveKey struct{}

// loadsOf returns the loads that ctx runs under.
func loadsOf(ctx context.Context) *loadsAbove {
	above, _ := ctx.Value(loadsAboveKey{}).(*loadsAbove)
	return above
}

// underNoLoad returns ctx without loads, for work that no load waits for.
func underNoLoad(ctx context.Context) context.Context {
	return context.WithValue(ctx, loadsAboveKey{}, (*loadsAbove)(nil))
}

// begin adds the load to the graph. It returns the ctx for the loader.
func (r *runningLoad) begin(ctx context.Context) context.Context {
	graph.mu.Lock()
	defer graph.mu.Unlock()
	r.waits = map[loadedKey]int{}
	for _, k := range r.keys {
		if graph.loads[k] == nil {
			graph.loads[k] = map[*runningLoad]struct{}{}
		}
		graph.loads[k][r] = struct{}{}
	}
	return context.WithValue(ctx, loadsAboveKey{}, &loadsAbove{r, loadsOf(ctx)})
}

// end removes the load from the graph: nothing waits for its result any more.
func (r *runningLoad) end() {
	graph.mu.Lock()
	defer graph.mu.Unlock()
	r.ended = true
	for _, k := range r.keys {
		if delete(graph.loads[k], r); len(graph.loads[k]) == 0 {
			delete(graph.loads, k)
		}
	}
}

// isWaiting reports whether the load's loader waits for another load.
func (r *runningLoad) isWaiting() bool {
	graph.mu.Lock()
	defer graph.mu.Unlock()
	return len(r.waits) > 0
}

// isOwnKey reports whether k is loaded by a load that the caller runs under and that still
// waits for the caller. It may not wait any more, because its own callers may have been served
// a stale value or may have left.
func (a *loadsAbove) isOwnKey(k loadedKey) bool {
	if a == nil {
		return false
	}
	graph.mu.Lock()
	defer graph.mu.Unlock()
	for r := range graph.loads[k] {
		if a.has(r) && r.waitsFor(a.load, map[*runningLoad]bool{}) {
			return true
		}
	}
	return false
}

func (a *loadsAbove) has(r *runningLoad) bool {
	for ; a != nil; a = a.above {
		if a.load == r {
			return true
		}
	}
	return false
}

// wait records that a call under these loads waits for k, until done is called. ok is false if
// the call's own load loads k, or if a load of k waits for it. Then the call must not wait. A
// cycle is always closed by the wait that comes last, so it is enough to check at each wait.
func (a *loadsAbove) wait(k loadedKey) (done func(), ok bool) {
	if a == nil {
		return func() {}, true
	}
	r := a.load
	graph.mu.Lock()
	if r.ended { // the ctx is used after its load ended
		graph.mu.Unlock()
		return func() {}, true
	}
	if anyWaitsFor(k, r, map[*runningLoad]bool{}) {
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
func (r *runningLoad) waitsFor(other *runningLoad, seen map[*runningLoad]bool) bool {
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
func anyWaitsFor(k loadedKey, other *runningLoad, seen map[*runningLoad]bool) bool {
	for r := range graph.loads[k] {
		if r.waitsFor(other, seen) {
			return true
		}
	}
	return false
}
