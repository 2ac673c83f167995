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

// maxLooks bounds how often one call looks for what it can decode. Then it loads alone.
const maxLooks = 4

// Do returns the value of key, 1 to 512 bytes of any kind: from the cache where
// it is fresh there, else from one call of load in the whole fleet, whose result
// all callers that wait for it share. Each caller gets a decoded value of its own.
//
// A hit costs one GET. A miss costs one script call more. The process that then
// loads publishes with a second one, which is complete before Do returns where Redis
// answers, and is waited for at most 1 s where not. The processes that wait are sent
// the result; where it is larger than 4 KiB, each gets it with one GET.
//
// load runs on a goroutine of its own. Its ctx carries the values of the first
// caller's and the loads that it runs under; a refresh in the background runs under none.
// It ends when nobody in the fleet waits any more, with leasehold.ErrLost when the process
// was cut off from Redis or its lease otherwise lost, after Config.LoadTimeout, and on
// Close. What load returns goes
// to all; [ErrNotFound] says that there is no such thing. Where load panics or
// calls [runtime.Goexit], so does Do in the first caller; all others get an
// error. A load that asks for its own key gets [ErrLoadCycle]. A load that waits for
// another one, and whose own callers in this process have left, is given up; a process
// that waits for it takes it over.
//
// An entry that can't be decoded is a miss. A caller that can't decode what others load
// either, after a few tries, calls its own load, beside those of others and within
// MaxLoads and LoadTimeout. It gets what that returns, as it is, and nothing is stored.
//
// ctx bounds the wait: when it ends, Do returns at once, while the load goes on
// for the others. Redis is asked for the cached value for at most 3 s, and the client's
// WriteTimeout and ReadTimeout, and for as long again for the right to load it. That
// holds for any number of callers. A load is bounded by ctx and Config.LoadTimeout
// alone.
//
// Errors: the loader's, or a *[RemoteError] with its text where it ran in another
// process or a failure is remembered; leasehold.ErrInvalid for a bad key;
// leasehold.ErrUnavailable where Redis can't be asked (see Config.OnUnavailable);
// [ErrLoadCycle]; leasehold.ErrClosed; ctx's own.
func (g *Group[T]) Do(ctx context.Context, key string, load func(ctx context.Context) (T, error)) (T, error) {
	r, err := g.fetch(ctx, "do", key, load)
	return r.Value, err
}

// Fetch is [Group.Do] that also says where the value is from and how old it is.
func (g *Group[T]) Fetch(ctx context.Context, key string, load func(ctx context.Context) (T, error)) (Result[T], error) {
	return g.fetch(ctx, "fetch", key, load)
}

func (g *Group[T]) fetch(ctx context.Context, op, key string, load func(ctx context.Context) (T, error)) (Result[T], error) {
	t, err := g.target(op, key)
	if err != nil {
		return Result[T]{}, err
	}
	if g.closed.Load() {
		return Result[T]{}, call.Fail(pkg, op, t.Label, leasehold.ErrClosed)
	}
	if loadsOf(ctx).isOwnKey(g.loadedKey(t)) {
		g.returned(0, []error{ErrLoadCycle})
		return Result[T]{}, call.Fail(pkg, op, t.Label, ErrLoadCycle)
	}
	seen := g.lookUp(ctx, t)
	r, errs := seen.result, seen.errs
	if seen.verdict != hit { // which needs no request
		q := &request[T]{g: g, target: t, ctx: ctx, load: loaderOfOne(load)}
		r, errs = q.run(seen)
	}
	g.returned(r.Source, errs)
	if errs != nil {
		return Result[T]{}, call.Fail(pkg, op, t.Label, errs...)
	}
	return r, nil
}

// Peek returns what is cached of key, fresh or stale, and never loads. It reports
// false where there is nothing, or nothing that is still served; a remembered
// [ErrNotFound] is true and that error. One GET. Peek returns within 3 s and the client's
// WriteTimeout and ReadTimeout. When ctx ends it returns at once, unless the GET was sent:
// its answer is waited for. Other errors: leasehold.ErrInvalid, leasehold.ErrUnavailable,
// leasehold.ErrClosed, ctx's own.
func (g *Group[T]) Peek(ctx context.Context, key string) (Result[T], bool, error) {
	const op = "peek"
	t, err := g.target(op, key)
	if err != nil {
		return Result[T]{}, false, err
	}
	if g.closed.Load() {
		return Result[T]{}, false, call.Fail(pkg, op, t.Label, leasehold.ErrClosed)
	}
	_, e, errs := g.read(ctx, t)
	switch {
	case errs != nil:
		return Result[T]{}, false, call.Fail(pkg, op, t.Label, errs...)
	case e.fresh() && e.env.Kind == envelope.NotFound:
		return Result[T]{}, true, call.Fail(pkg, op, t.Label, ErrNotFound)
	case e.fresh():
		if r, ok := g.serve(t, e, Cached); ok {
			return r, true, nil
		}
	case e.stale(max(g.cfg.StaleFor, g.cfg.StaleIfError)):
		if r, ok := g.serve(t, e, Stale); ok {
			return r, true, nil
		}
	}
	return Result[T]{}, false, nil
}

// loader loads several keys.
type loader[T any] func(ctx context.Context, keys []string) (map[string]T, error)

// loaderOfOne makes a loader of one key into one of several.
func loaderOfOne[T any](load func(ctx context.Context) (T, error)) loader[T] {
	return func(ctx context.Context, keys []string) (map[string]T, error) {
		v, err := load(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]T{keys[0]: v}, nil
	}
}

// request is what one call wants of one key that the cache did not simply serve.
type request[T any] struct {
	g *Group[T]
	target
	ctx  context.Context // of the caller
	load loader[T]       // of the caller

	rejected loads.Rejected // what the last look saw that does not serve
	stale    *Result[T]     // a stale value that the caller has read itself, and may be served

	outcomes chan outcome[T] // of one; made when it first joins a flight
	waitOver func()          // takes its wait out of the graph of loads

	// Guarded by the group's lock.
	flight *flight[T] // that it has joined
	place  int        // among the requests of the flight, in the order of arrival
	// joinedBeforeAsk: it came before its flight last asked Redis, and so may have
	// the result of any load that Redis answered with. A request that came later may
	// not: somebody may have invalidated that load after the answer and before the
	// request came.
	joinedBeforeAsk bool
}

// outcome is what a request came to.
type outcome[T any] struct {
	errs   []error           // it failed
	raised *raised           // the caller's own loader panicked
	raw    *T                // the caller's own loader's value, should it not survive its codec
	env    envelope.Envelope // else: to be decoded
	source Source
	age    time.Duration
}

// answer gives requests their outcome. None is answered twice: a request is taken
// out of its flight first, with the group's lock.
func answer[T any](all []*request[T], o outcome[T]) {
	for _, q := range all {
		q.outcomes <- o
	}
}

// run gets the caller what it wants, where its first look saw what seen says.
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
			errs = q.wait(g.joinLocally)
		default:
			errs = q.wait(g.join)
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
	if errs := q.wait(q.g.loadAlone); errs != nil {
		return Result[T]{}, errs
	}
	r, errs, _ := q.await()
	return r, errs
}

// wait joins a flight, unless that would have the load that the caller runs in wait for
// itself.
func (q *request[T]) wait(join func([]*request[T]) []error) []error {
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

// await waits for the request's outcome. lookAgain says that the caller can't decode it.
func (q *request[T]) await() (r Result[T], errs []error, lookAgain bool) {
	defer q.waitOver() // also where a loader's panic is raised again here
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

// take makes an outcome into what the call returns, on the caller's goroutine:
// there a panic of its own loader is raised again.
func (q *request[T]) take(o outcome[T]) (r Result[T], errs []error, lookAgain bool) {
	switch {
	case o.raised != nil:
		if o.raised.goexit {
			runtime.Goexit()
		}
		panic(o.raised.value)
	case o.errs != nil && q.staleInstead(o.errs):
		return *q.stale, nil, false
	case o.errs != nil:
		return Result[T]{Source: o.source}, o.errs, false
	case o.raw != nil && o.env.Kind != envelope.Value && o.env.Kind != envelope.TooLarge:
		return Result[T]{Value: *o.raw, Source: Loaded}, nil, false // it can't be encoded
	}
	v, err := q.g.decode(o.env.Payload)
	switch {
	case err != nil && o.raw != nil:
		return Result[T]{Value: *o.raw, Source: Loaded}, nil, false // to look again would find nothing better
	case err != nil:
		q.g.undecodable(q.target, err)
		return r, nil, true
	}
	return Result[T]{Value: v, Source: o.source, Age: o.age}, nil, false
}

// staleInstead reports whether the stale value is to be served for these errors:
// never for ErrNotFound, which is an answer, nor after Close.
func (q *request[T]) staleInstead(errs []error) bool {
	err := errors.Join(errs...)
	return q.stale != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, leasehold.ErrClosed)
}

// split divides requests into those that came before their load asked Redis and
// those that came later.
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
