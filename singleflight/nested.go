package singleflight

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ErrLoadCycle says that a loader asked for a key that its own load would have to wait
// for: its own key, or one whose load, in this process, waits for it already. Such a
// call fails at once, before it sends anything. It is recognised by the loader's ctx,
// which the loader must pass on, and through each handle on the same cached values that
// has the same client. A cycle through other processes is not seen from here: its loads
// end when the callers that wanted them have left.
var ErrLoadCycle = errors.New("the load would wait for itself")

// runningLoad is a loader's call under way, in the graph of what waits for what in
// this process, across groups and handles.
type runningLoad struct {
	keys []loadedKey
	// endIfUnwanted ends the load if it has no callers in this process.
	endIfUnwanted func()

	// Guarded by graph.mu.
	ended bool
	waits map[loadedKey]int // what its loader waits for now
}

// loadedKey is a cached value, whichever handles there are on it.
type loadedKey struct {
	client any    // clientID
	value  string // its name in Redis
}

func (g *Group[T]) loadedKey(t target) loadedKey { return loadedKey{g.clientID, t.value} }

// clientID is the same for handles with the same client, and can be compared. A client,
// and a type that embeds one, is known by its Options, which are no other client's. A
// type that hides its client is known by itself. One that can't be compared is like no
// other: each handle on it has a clientID of its own.
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

// graph is the loads that run in this process.
var graph = struct {
	mu    sync.Mutex // a leaf: nothing else is locked while it is held
	loads map[loadedKey]map[*runningLoad]struct{}
}{loads: map[loadedKey]map[*runningLoad]struct{}{}}

// loadsAbove is what a loader's ctx carries: the load that it runs in, and the loads
// that this one was called from.
type loadsAbove struct {
	load  *runningLoad
	above *loadsAbove
}

type loadsAboveKey struct{}

// loadsOf is the loads that ctx runs under.
func loadsOf(ctx context.Context) *loadsAbove {
	above, _ := ctx.Value(loadsAboveKey{}).(*loadsAbove)
	return above
}

// underNoLoad is ctx for what no load waits for.
func underNoLoad(ctx context.Context) context.Context {
	return context.WithValue(ctx, loadsAboveKey{}, (*loadsAbove)(nil))
}

// begin adds the load to the graph. The ctx that it returns is for its loader.
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

// end takes the load out of the graph: nothing waits for its result any more.
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

// isOwnKey reports whether a load that the caller runs under, and that waits for it yet,
// loads k. The callers of a load may have been served something older, or have left.
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

// wait notes that a call under these loads waits for k, until done is called. It
// reports false if the call's own load loads k, or a load of k waits for it: then the call
// must not wait. A cycle is closed by the wait that comes last, so a check at each is
// enough.
func (a *loadsAbove) wait(k loadedKey) (done func(), ok bool) {
	if a == nil {
		return func() {}, true
	}
	r := a.load
	graph.mu.Lock()
	if r.ended { // its ctx has outlived it
		graph.mu.Unlock()
		return func() {}, true
	}
	if anyWaitsFor(k, r, map[*runningLoad]bool{}) {
		graph.mu.Unlock()
		return nil, false
	}
	r.waits[k]++
	graph.mu.Unlock()
	// A load without callers must not keep others alive. Where its last caller leaves
	// from here on, leave finds that it waits.
	r.endIfUnwanted()
	return func() {
		graph.mu.Lock()
		defer graph.mu.Unlock()
		if r.waits[k]--; r.waits[k] == 0 {
			delete(r.waits, k)
		}
	}, true
}

// waitsFor reports whether r is other, or waits for it, directly or through others.
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

// anyWaitsFor is waitsFor for any load of k.
func anyWaitsFor(k loadedKey, other *runningLoad, seen map[*runningLoad]bool) bool {
	for r := range graph.loads[k] {
		if r.waitsFor(other, seen) {
			return true
		}
	}
	return false
}
