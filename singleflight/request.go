package singleflight

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/cycles"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// maxLooks bounds how often one call looks for a value that it can decode. Then it loads
// alone.
const maxLooks = 4

// request is one call's request for one key, if the cache could not simply serve it.
type request[T any] struct {
	*calling[T] // the call that it is of
	target
	begun int64         // how many loaders the group had called when the call began
	above *cycles.Above // the loads that the caller runs under
	load  loader[T]     // of the caller

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

// calling is a call of Do, Fetch or DoMany with the requests that the cache could not simply
// serve.
type calling[T any] struct {
	g     *Group[T]
	ctx   context.Context
	began time.Time // zero: there is no Observer
	done  func(q *request[T], r Result[T], errs []error)
}

func (c *calling[T]) end(q *request[T], r Result[T], errs []error) {
	c.g.returned(c.began, r.Source, errs)
	c.done(q, r, errs)
}

// run ends all requests. seen are the results of their first look-ups.
func (c *calling[T]) run(open []*request[T], seen []look[T]) {
	for n := 1; ; n++ {
		missing, away := c.decide(open, seen)
		waiting := c.join(missing, func(all []*request[T]) { c.g.join(all, all[0]) })
		waiting = append(waiting, c.join(away, c.g.joinLocally)...)
		open = c.await(waiting)
		if len(open) == 0 {
			return
		}
		if n == maxLooks || len(away) > 0 { // another look-up would find nothing better
			c.await(c.join(open, c.g.loadAlone))
			return
		}
		seen = c.g.lookUpMany(c.ctx, open)
	}
}

// decide ends the requests that a look-up serves. It returns those that are to join flights
// with Redis (missing), and without it (away).
func (c *calling[T]) decide(open []*request[T], all []look[T]) (missing, away []*request[T]) {
	var stale, early []*request[T]
	for i, seen := range all {
		q := open[i]
		q.rejected, q.stale = seen.rejected, seen.stale
		switch {
		case seen.verdict == miss:
			missing = append(missing, q)
			continue
		case seen.verdict == unobtainable && c.g.cfg.OnUnavailable == LoadLocally && c.ctx.Err() == nil:
			away = append(away, q)
			continue
		case seen.verdict == hitAndStale:
			stale = append(stale, q)
		case seen.verdict == hitAndEarly && (seen.copy == nil || seen.copy.Refreshing.CompareAndSwap(false, true)):
			early = append(early, q)
		}
		c.end(q, seen.result, seen.errs)
	}
	c.g.refresh(stale, false)
	c.g.refresh(early, true)
	return missing, away
}

// join puts requests into flights, with a function that is called with the group's lock, and
// returns those that joined. A request is refused if the load that the caller runs in would then
// wait for itself.
func (c *calling[T]) join(all []*request[T], into func([]*request[T])) (some []*request[T]) {
	for _, q := range all {
		over, ok := q.above.Wait(c.g.loadedKey(q.target))
		if !ok {
			c.end(q, Result[T]{}, []error{ErrLoadCycle})
			continue
		}
		q.waitOver = over
		some = append(some, q)
	}
	if len(some) == 0 {
		return nil
	}
	c.g.mu.Lock()
	closed := c.g.closed.Load()
	if !closed {
		into(some)
	}
	c.g.mu.Unlock()
	if !closed {
		return some
	}
	for _, q := range some {
		q.waitOver()
		c.end(q, Result[T]{}, []error{leasehold.ErrClosed})
	}
	return nil
}

// await waits for the outcomes of all requests. It returns the requests that cannot decode
// theirs.
func (c *calling[T]) await(waiting []*request[T]) (lookAgain []*request[T]) {
	left := make(map[*request[T]]bool, len(waiting)) // requests without an outcome yet
	for _, q := range waiting {
		left[q] = true
	}
	defer func() { // this also runs if the panic of a loader is raised again here
		for _, q := range waiting {
			q.waitOver()
		}
		for q := range left {
			q.leave(false)
		}
	}()
	var soft <-chan time.Time
	if c.g.cfg.SoftTimeout > 0 && slices.ContainsFunc(waiting, func(q *request[T]) bool { return q.stale != nil }) {
		timer := time.NewTimer(c.g.cfg.SoftTimeout)
		defer timer.Stop()
		soft = timer.C
	}
	for _, q := range waiting {
		for left[q] {
			select {
			case o := <-q.outcomes:
				delete(left, q)
				r, errs, again := q.take(o)
				if again {
					lookAgain = append(lookAgain, q)
				} else {
					c.end(q, r, errs)
				}
			case <-soft:
				soft = nil
				c.serveStale(left)
			case <-c.ctx.Done():
				if len(q.outcomes) > 0 {
					continue // it came while the call waited for another key
				}
				delete(left, q)
				q.leave(false)
				c.end(q, Result[T]{}, []error{c.ctx.Err()})
			}
		}
	}
	return lookAgain
}

// serveStale serves the requests that have a stale value and no outcome yet.
func (c *calling[T]) serveStale(left map[*request[T]]bool) {
	for q := range left {
		if q.stale != nil && len(q.outcomes) == 0 {
			q.leave(true)
			delete(left, q)
			c.end(q, *q.stale, nil)
		}
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
