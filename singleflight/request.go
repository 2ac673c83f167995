package singleflight

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// maxLooks bounds how often one call looks for a value that it can decode. Then it loads
// alone.
const maxLooks = 4

// Do returns the value of key, which is 1 to 512 arbitrary bytes. If the value is fresh in the
// cache, it is returned from there. Otherwise one caller in the whole fleet calls its load,
// and all callers that wait share the result. Each caller gets a decoded value of its own.
//
// load runs on a goroutine of its own. Its ctx carries the values of the first caller's ctx,
// and the loads that this caller runs under. A refresh in the background runs under no load.
// The ctx ends when no caller in the fleet waits any more, with leasehold.ErrLost if the
// process was cut off from Redis or the lease was lost otherwise, after Config.LoadTimeout,
// and on Close.
//
// All callers get what load returns. load returns [ErrNotFound] if the value does not exist.
// If load panics or calls [runtime.Goexit], Do does the same in the first caller, and all
// other callers get an error. If load asks for its own key, it gets [ErrLoadCycle]. If load
// waits for another load and its own callers in this process have left, the load is given up,
// and another process that waits for it takes over.
//
// An entry that cannot be decoded is a miss. If a caller still cannot decode what others load
// after a few tries, it calls its own load, at the same time as others do, but within MaxLoads
// and LoadTimeout. It gets what that load returns, unchanged, and nothing is stored.
//
// ctx bounds the wait. When it ends, Do returns at once, and the load goes on for the other
// callers. If a GET was already sent, Do first waits for its answer, as [Group.Peek] does.
//
// Do asks Redis for the cached value for at most 3 s plus the client's WriteTimeout and
// ReadTimeout. It then asks for the right to load the value: it begins tries for 3 s, and the
// last one has the same bound. This holds for any number of callers. Only ctx and
// Config.LoadTimeout bound the wait for a load while Redis answers. Once Redis is known to be
// away (it refused a connection, or was silent for 3 s), a call waits for it for 100 ms at most.
//
// Its errors are the loader's; a *[RemoteError] with the text of the loader's error, if the
// loader ran in another process, if the failure is remembered, or if the loader of another
// caller panicked; an error if the value cannot be encoded; leasehold.ErrInvalid for a bad
// key; leasehold.ErrUnavailable if Redis is unavailable (see Config.OnUnavailable);
// [ErrLoadCycle]; leasehold.ErrClosed; and ctx's own.
//
// A hit costs one GET. A miss costs one more script call. The process that loads publishes
// with a second script call. Do waits until Redis has answered that call, for at most 1 s. The
// result is sent to the processes that wait. If it is larger than 4 KiB, each of them gets it
// with one GET.
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
	if g.near != nil && loadsOf(ctx) == nil {
		if r, err, ok := g.fetchNear(ctx, op, key, load); ok {
			return r, err
		}
	}
	t, err := g.target(op, key)
	if err != nil {
		return Result[T]{}, err
	}
	if g.closed.Load() {
		return Result[T]{}, call.Fail(pkg, op, t.Label, leasehold.ErrClosed)
	}
	began := g.now()
	if loadsOf(ctx).isOwnKey(g.loadedKey(t)) {
		g.returned(began, 0, []error{ErrLoadCycle})
		return Result[T]{}, call.Fail(pkg, op, t.Label, ErrLoadCycle)
	}
	if g.near != nil && loadsOf(ctx) != nil {
		if r, err, ok := g.fetchNear(ctx, op, key, load); ok {
			return r, err
		}
	}
	begun := g.called.Load()
	seen := g.lookUp(ctx, t)
	r, errs := seen.result, seen.errs
	if seen.verdict != hit { // a hit needs no request
		q := &request[T]{g: g, target: t, begun: begun, ctx: ctx, load: loaderOfOne(load)}
		r, errs = q.run(seen)
	}
	g.returned(began, r.Source, errs)
	if errs != nil {
		return Result[T]{}, call.Fail(pkg, op, t.Label, errs...)
	}
	return r, nil
}

// Peek returns the cached value of key, fresh or stale, and never loads. The bool is false if
// there is no value, or none that may still be served. For a remembered [ErrNotFound] the bool
// is true and the error is ErrNotFound.
//
// Peek returns within 3 s plus the client's WriteTimeout and ReadTimeout. If ctx ends, Peek
// returns at once, unless the GET was already sent: then it waits for the answer. Other errors
// are leasehold.ErrInvalid, leasehold.ErrUnavailable, leasehold.ErrClosed and ctx's own. Peek
// costs one GET.
func (g *Group[T]) Peek(ctx context.Context, key string) (Result[T], bool, error) {
	call.NeedCtx(ctx)
	const op = "peek"
	t, err := g.target(op, key)
	if err != nil {
		return Result[T]{}, false, err
	}
	if g.closed.Load() {
		return Result[T]{}, false, call.Fail(pkg, op, t.Label, leasehold.ErrClosed)
	}
	if g.near != nil && ctx.Err() == nil {
		if seen, ok := g.inMemory(ctx, key); ok {
			if seen.errs != nil {
				return Result[T]{}, true, call.Fail(pkg, op, t.Label, seen.errs...)
			}
			return seen.result, true, nil
		}
	}
	began := g.now()
	_, e, errs := g.read(ctx, t)
	switch {
	case errs != nil:
		if r, ok := g.staleInMemory(ctx, key); ok {
			return r, true, nil
		}
		g.failed(began, errs)
		return Result[T]{}, false, call.Fail(pkg, op, t.Label, errs...)
	case e.fresh() && e.env.Kind == envelope.NotFound:
		return Result[T]{}, true, call.Fail(pkg, op, t.Label, ErrNotFound)
	case e.fresh():
		if r, ok := g.serve(ctx, t, e, Cached); ok {
			return r, true, nil
		}
	case e.stale(max(g.cfg.StaleFor, g.cfg.StaleIfError)):
		if r, ok := g.serve(ctx, t, e, Stale); ok {
			return r, true, nil
		}
	}
	if err := ctx.Err(); err != nil { // it may have ended the decoding
		return Result[T]{}, false, call.Fail(pkg, op, t.Label, err)
	}
	return Result[T]{}, false, nil
}

// loader loads several keys.
type loader[T any] func(ctx context.Context, keys []string) (map[string]T, error)

// loaderOfOne turns a loader of one key into a loader of several keys.
func loaderOfOne[T any](load func(ctx context.Context) (T, error)) loader[T] {
	return func(ctx context.Context, keys []string) (map[string]T, error) {
		v, err := load(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]T{keys[0]: v}, nil
	}
}

// request is one call's request for one key, if the cache could not simply serve it.
type request[T any] struct {
	g *Group[T]
	target
	begun int64           // how many loaders the group had called when the call began
	ctx   context.Context // of the caller
	load  loader[T]       // of the caller

	rejected loads.Rejected // the entry that the last look-up found, which a load is to replace
	stale    *Result[T]     // a stale value that this caller has read itself and may be served

	outcomes chan outcome[T] // has room for one; made when the request first joins a flight
	waitOver func()          // removes its wait from the graph of loads

	// Guarded by the group's lock.
	flight *flight[T] // the flight that it has joined
	place  int        // among the requests of the flight, in the order of arrival
	left   bool       // its caller has left
	// joinedBeforeAsk says that the request joined before its flight last asked Redis. So it
	// may get the result of any load that Redis answered with. A request that joined later may
	// not: that load may have been invalidated after the answer and before the request.
	joinedBeforeAsk bool
}

// outcome is the outcome of a request.
type outcome[T any] struct {
	errs   []error           // the request failed
	failed *failure          // so did the load
	raised *raised           // the caller's own loader panicked
	raw    *T                // what the caller's own loader returned, in case its codec cannot restore it
	env    envelope.Envelope // otherwise: to be decoded
	source Source
	age    time.Duration
}

// answer gives requests their outcome. No request is answered twice: before this, it is taken
// out of its flight under the group's lock.
func answer[T any](all []*request[T], o outcome[T]) {
	if len(all) > 0 && all[0].g.near != nil && o.outdates() {
		all[0].g.near.Outdate(all[0].key) // they are of one key
	}
	for _, q := range all {
		q.outcomes <- o
	}
}

// run gets the value for the caller. seen is the result of its first look-up.
func (q *request[T]) run(seen look[T]) (Result[T], []error) {
	g := q.g
	for n := 1; ; n++ {
		q.rejected, q.stale = seen.rejected, seen.stale
		var errs []error
		switch seen.verdict {
		case hit:
			return seen.result, seen.errs
		case hitAndEarly, hitAndStale:
			g.refresh([]*request[T]{q}, seen.verdict == hitAndEarly)
			return seen.result, seen.errs
		case unobtainable:
			if !q.mayLoadLocally() {
				return Result[T]{}, seen.errs
			}
			errs = q.join(g.joinLocally)
		default:
			errs = q.join(g.join)
		}
		if errs != nil {
			return Result[T]{}, errs
		}
		r, errs, lookAgain := q.await()
		if !lookAgain {
			return r, errs
		}
		if n == maxLooks || seen.verdict == unobtainable {
			return q.loadAlone()
		}
		seen = g.lookUp(q.ctx, q.target)
	}
}

// loadAlone gets the caller the value of its own loader, which needs no decoding.
func (q *request[T]) loadAlone() (Result[T], []error) {
	if errs := q.join(q.g.loadAlone); errs != nil {
		return Result[T]{}, errs
	}
	r, errs, _ := q.await()
	return r, errs
}

// join makes the request join a flight, with the given join of the group. It refuses if the
// load that the caller runs in would then wait for itself.
func (q *request[T]) join(join func([]*request[T]) []error) []error {
	over, ok := loadsOf(q.ctx).wait(q.g.loadedKey(q.target))
	if !ok {
		return []error{ErrLoadCycle}
	}
	q.waitOver = over
	errs := join([]*request[T]{q})
	if errs != nil {
		over()
	}
	return errs
}

// mayLoadLocally reports whether the caller is to be served without Redis.
func (q *request[T]) mayLoadLocally() bool {
	return q.g.cfg.OnUnavailable == LoadLocally && q.ctx.Err() == nil
}

// await waits for the request's outcome. lookAgain says that the caller cannot decode it.
func (q *request[T]) await() (r Result[T], errs []error, lookAgain bool) {
	defer q.waitOver() // this also runs if a loader's panic is raised again here
	var soft <-chan time.Time
	if q.stale != nil && q.g.cfg.SoftTimeout > 0 {
		timer := time.NewTimer(q.g.cfg.SoftTimeout)
		defer timer.Stop()
		soft = timer.C
	}
	select {
	case o := <-q.outcomes:
		return q.take(o)
	case <-soft:
		q.leave(true)
		return *q.stale, nil, false
	case <-q.ctx.Done():
		q.leave(false)
		return Result[T]{}, []error{q.ctx.Err()}, false
	}
}

// take turns an outcome into what the call returns. It runs on the caller's goroutine, so that
// a panic of the caller's own loader is raised again there.
func (q *request[T]) take(o outcome[T]) (r Result[T], errs []error, lookAgain bool) {
	switch {
	case o.raised != nil:
		if o.raised.goexit {
			runtime.Goexit()
		}
		panic(o.raised.value)
	case o.failed != nil && q.stale != nil && o.failed.kind != envelope.NotFound:
		return *q.stale, nil, false
	case o.failed != nil:
		return Result[T]{Source: o.source}, []error{o.failed.err}, false
	case o.errs != nil && q.staleInstead(o.errs):
		return *q.stale, nil, false
	case o.errs != nil:
		return Result[T]{Source: o.source}, o.errs, false
	case o.raw != nil && o.env.Kind != envelope.Value && o.env.Kind != envelope.TooLarge:
		return Result[T]{Value: *o.raw, Source: Loaded}, nil, false // the value cannot be encoded
	}
	v, err := q.g.decode(q.ctx, o.env.Payload)
	switch {
	case err != nil && o.raw != nil:
		return Result[T]{Value: *o.raw, Source: Loaded}, nil, false // another look-up would find nothing better
	case err != nil && q.ctx.Err() != nil:
		return r, []error{q.ctx.Err()}, false
	case err != nil:
		q.g.undecodable(q.ctx, q.target, err)
		return r, nil, true
	}
	return Result[T]{Value: v, Source: o.source, Age: o.age}, nil, false
}

// staleInstead reports whether the stale value is served instead of these errors. It is never
// served instead of ErrNotFound, which is an answer, nor after Close.
func (q *request[T]) staleInstead(errs []error) bool {
	err := errors.Join(errs...)
	return q.stale != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, leasehold.ErrClosed)
}

// split divides requests into those that joined before their flight asked Redis and those that
// joined later.
func split[T any](all []*request[T]) (before, later []*request[T]) {
	for _, q := range all {
		if q.joinedBeforeAsk {
			before = append(before, q)
		} else {
			later = append(later, q)
		}
	}
	return before, later
}
