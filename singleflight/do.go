package singleflight

import (
	"context"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/cycles"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/nested"
)

// The life of a call, from the top: it is begun here; its key is looked up (lookup.go); what was
// found decides whether it is served, or joins a flight (request.go); the flight leads the load
// or waits for another process's (flight.go, wait.go); the loader runs (load.go, callers.go); its
// result is published and handed out (publish.go).

// Do returns the value of key, which is 1 to 512 arbitrary bytes, from the cache if it is fresh
// there. Otherwise one caller in the whole fleet calls its load, and all callers that wait share
// the result. Each caller gets a decoded value of its own.
//
// load runs on a goroutine of its own. Its ctx carries the values of the first caller's ctx. It
// ends when no caller in the fleet waits any more, with leasehold.ErrLost if the lease was lost,
// after Config.LoadTimeout, and on Close. load returns [ErrNotFound] if the value does not exist.
// If load panics or calls [runtime.Goexit], Do does the same in the first caller, and the others
// get an error. A caller that cannot decode what others load calls its own load in the end.
//
// ctx bounds the wait. When it ends, Do returns at once, unless a GET is under way, and the load
// goes on for others. Do waits for Redis for at most 9 s plus twice the client's WriteTimeout and
// ReadTimeout, and for 100 ms once Redis is known to be away.
//
// Its errors are the loader's; a *[RemoteError] for a loader of another process or a remembered
// failure; leasehold.ErrInvalid for a bad key; leasehold.ErrUnavailable (see
// Config.OnUnavailable); [ErrLoadCycle]; leasehold.ErrClosed; and ctx's own.
//
// A hit costs one GET, a miss one script call more, and a load one more to publish its result.
func (g *Group[T]) Do(ctx context.Context, key string, load func(ctx context.Context) (T, error)) (T, error) {
	call.NeedCtx(ctx)
	r, err := g.fetch(ctx, "do", key, load)
	return r.Value, err
}

// Fetch is like [Group.Do] but also returns the source and the age of the value.
func (g *Group[T]) Fetch(ctx context.Context, key string, load func(ctx context.Context) (T, error)) (Result[T], error) {
	call.NeedCtx(ctx)
	return g.fetch(ctx, "fetch", key, load)
}

func (g *Group[T]) fetch(ctx context.Context, op, key string, load func(ctx context.Context) (T, error)) (Result[T], error) {
	began, above := g.now(), cycles.Of(ctx)
	var seen look[T]
	inMemory := false
	if above == nil { // so no load can wait for itself
		if seen, inMemory = g.inMemory(ctx, key); inMemory && seen.verdict == hit && seen.errs == nil {
			g.returned(began, Near, nil)
			return seen.result, nil
		}
	}
	t, err := g.target(op, key)
	if err != nil {
		return Result[T]{}, err
	}
	if g.closed.Load() {
		return Result[T]{}, call.Fail(pkg, op, t.Label(), leasehold.ErrClosed)
	}
	if above != nil {
		if above.IsOwnKey(g.loadedKey(t)) {
			g.returned(began, 0, []error{ErrLoadCycle})
			return Result[T]{}, call.Fail(pkg, op, t.Label(), ErrLoadCycle)
		}
		seen, inMemory = g.inMemory(ctx, key)
	}
	begun := g.called.Load()
	if !inMemory {
		seen = g.lookUp(ctx, t)
	}
	if seen.verdict == hit { // needs no request
		g.returned(began, seen.result.Source, seen.errs)
	} else {
		var got look[T] // seen must not escape to the heap
		c := &calling[T]{g: g, ctx: nested.Calm{Context: ctx}, began: began, done: func(_ *request[T], r Result[T], errs []error) { got.result, got.errs = r, errs }}
		q := &request[T]{calling: c, target: t, begun: begun, above: above, load: loaderOfOne(load)}
		c.run([]*request[T]{q}, []look[T]{seen})
		seen = got
	}
	if seen.errs != nil {
		return Result[T]{}, call.Fail(pkg, op, t.Label(), seen.errs...)
	}
	return seen.result, nil
}

// DoMany is like [Group.Do] for several keys. It calls load once, for the keys that are not
// cached and that no other caller is loading. It waits for the results of the loads of others.
// Duplicate keys count once. A key that is missing in the map that load returns is
// [ErrNotFound]. DoMany may call load again, for keys whose loader in another process died.
// With MaxLoads each call of load takes one permit.
//
// DoMany returns the values that it got, and a *[KeysError] with the errors of all other keys.
// If load returns both a map and an error, the values in the map are stored and returned, and
// the error is that of the keys that are missing in it. If one of the keys is bad, DoMany
// returns leasehold.ErrInvalid and does nothing else. The other errors are those of Do.
//
// All keys are looked up in one round trip. A second round trip settles what to do about the
// missing ones. In a Cluster these are one round trip per node. The values that this process
// loads are published before DoMany waits for the others. Each value is published by itself: a
// key that is invalidated meanwhile does not keep the others from being stored.
//
// The bounds are those of Do. If one server of a Cluster hangs, the keys of other servers are
// delayed only until the look-up on that server has failed.
func (g *Group[T]) DoMany(ctx context.Context, all []string, load func(ctx context.Context, missing []string) (map[string]T, error)) (map[string]T, error) {
	call.NeedCtx(ctx)
	ctx = nested.Calm{Context: ctx} // also because a panic on a goroutine of ByNode would end the process
	const op = "do many"
	found, failed := map[string]T{}, map[string]error{}
	c := &calling[T]{g: g, ctx: ctx, began: g.now(), done: func(q *request[T], r Result[T], errs []error) {
		if errs != nil {
			failed[q.key] = call.Fail(pkg, op, q.Label(), errs...)
			return
		}
		found[q.key] = r.Value
	}}
	begun, above := g.called.Load(), cycles.Of(ctx)
	var open, own []*request[T]
	seen := map[string]bool{}
	for _, key := range all {
		t, err := g.target(op, key)
		if err != nil {
			return nil, err
		}
		q := &request[T]{calling: c, target: t, begun: begun, above: above, load: load}
		switch {
		case seen[key]:
		case above.IsOwnKey(g.loadedKey(t)):
			own = append(own, q)
		default:
			open = append(open, q)
		}
		seen[key] = true
	}
	if g.closed.Load() {
		return nil, call.Fail(pkg, op, keys.Escape(g.cfg.Name), leasehold.ErrClosed)
	}
	for _, q := range own {
		c.end(q, Result[T]{}, []error{ErrLoadCycle})
	}
	c.run(open, g.lookUpMany(ctx, open))
	return found, failedKeys(failed)
}

// Peek returns the cached value of key, fresh or stale, and never loads. The bool is false if
// there is no value, or none that may still be served. For a remembered [ErrNotFound] the bool
// is true and the error is ErrNotFound.
//
// Peek returns within 3 s plus the client's WriteTimeout and ReadTimeout (6 s if the server falls
// silent after its first answer). If ctx ends, Peek returns at once, unless the GET was already
// sent: then it waits for the answer. Other errors are leasehold.ErrInvalid,
// leasehold.ErrUnavailable, leasehold.ErrClosed and ctx's own. Peek costs one GET.
func (g *Group[T]) Peek(ctx context.Context, key string) (Result[T], bool, error) {
	call.NeedCtx(ctx)
	const op = "peek"
	t, err := g.target(op, key)
	if err != nil {
		return Result[T]{}, false, err
	}
	if g.closed.Load() {
		return Result[T]{}, false, call.Fail(pkg, op, t.Label(), leasehold.ErrClosed)
	}
	began := g.now()
	seen, ok := g.inMemory(ctx, key)
	if !ok {
		seen = g.lookUp(ctx, t)
	}
	switch {
	case seen.stale != nil:
		return *seen.stale, true, nil
	case seen.verdict == unobtainable:
		g.failed(began, seen.errs)
		return Result[T]{}, false, call.Fail(pkg, op, t.Label(), seen.errs...)
	case seen.errs != nil:
		return Result[T]{}, true, call.Fail(pkg, op, t.Label(), seen.errs...)
	}
	return seen.result, seen.verdict != miss, nil
}

type loader[T any] func(ctx context.Context, keys []string) (map[string]T, error)

func loaderOfOne[T any](load func(ctx context.Context) (T, error)) loader[T] {
	return func(ctx context.Context, keys []string) (map[string]T, error) {
		v, err := load(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]T{keys[0]: v}, nil
	}
}
