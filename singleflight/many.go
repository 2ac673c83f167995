package singleflight

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// DoMany is [Group.Do] for several keys: load is called once for the keys that are
// neither cached nor loaded by another caller; the results of the others are waited
// for. Duplicate keys count once. A key that load's map leaves out is [ErrNotFound].
// load may be called again for keys whose loader elsewhere died. With MaxLoads a call
// of load takes one permit.
//
// All keys are looked up in one round trip, and what to do about those that are
// missing is settled in a second one (in a Cluster one per node). What this
// process loads is published before the others are waited for, each by itself: a
// key that is invalidated meanwhile doesn't keep its neighbours from being
// stored.
//
// It returns what was found, and the errors of all other keys joined; each names
// its key. Its bounds are those of Do. A server of a Cluster that hangs delays the
// other keys only until the look-up of its own has failed.
func (g *Group[T]) DoMany(ctx context.Context, all []string, load func(ctx context.Context, missing []string) (map[string]T, error)) (map[string]T, error) {
	const op = "do many"
	var open []*request[T]
	seen := map[string]bool{}
	for _, key := range all {
		t, err := g.target(op, key)
		if err != nil {
			return nil, err
		}
		if !seen[key] {
			seen[key] = true
			open = append(open, &request[T]{g: g, target: t, ctx: ctx, load: load})
		}
	}
	if g.closed.Load() {
		return nil, call.Fail(pkg, op, keys.Escape(g.cfg.Name), leasehold.ErrClosed)
	}
	m := &many[T]{g: g, ctx: ctx, found: make(map[string]T, len(open))}
	m.run(m.others(open))
	return m.found, errors.Join(m.errs...)
}

// many is one DoMany.
type many[T any] struct {
	g   *Group[T]
	ctx context.Context

	found map[string]T
	errs  []error
}

// done notes what the call returns for one key.
func (m *many[T]) done(q *request[T], r Result[T], errs []error) {
	m.g.returned(r.Source, errs)
	if errs != nil {
		m.errs = append(m.errs, call.Fail(pkg, "do many", q.Label, errs...))
		return
	}
	m.found[q.key] = r.Value
}

// others is the requests but for those of keys that the load in which the caller runs
// loads itself.
func (m *many[T]) others(open []*request[T]) []*request[T] {
	above := loadsOf(m.ctx)
	return slices.DeleteFunc(open, func(q *request[T]) bool {
		own := above.isOwnKey(m.g.loadedKey(q.target))
		if own {
			m.done(q, Result[T]{}, []error{ErrLoadCycle})
		}
		return own
	})
}

func (m *many[T]) run(open []*request[T]) {
	for n := 1; n <= maxLooks && len(open) > 0; n++ {
		missing, unobtainable := m.lookUp(open)
		waiting := m.join(missing, m.g.join)
		waiting = append(waiting, m.join(unobtainable, m.g.joinLocally)...)
		open = m.await(waiting)
	}
	if len(open) > 0 {
		m.await(m.join(open, m.g.loadAlone))
	}
}

// join has requests join flights, and returns those that have.
func (m *many[T]) join(all []*request[T], join func([]*request[T]) []error) []*request[T] {
	var some []*request[T]
	above := loadsOf(m.ctx)
	for _, q := range all {
		over, ok := above.wait(m.g.loadedKey(q.target))
		if !ok {
			m.done(q, Result[T]{}, []error{ErrLoadCycle})
			continue
		}
		q.waitOver = over
		some = append(some, q)
	}
	if len(some) == 0 {
		return nil
	}
	if errs := join(some); errs != nil {
		for _, q := range some {
			q.waitOver()
			m.done(q, Result[T]{}, errs)
		}
		return nil
	}
	return some
}

// lookUp serves from the cache what it can. The others are to be had by joining
// flights: with Redis, or without.
func (m *many[T]) lookUp(open []*request[T]) (missing, unobtainable []*request[T]) {
	var stale, early []*request[T]
	targets := make([]target, len(open))
	for i, q := range open {
		targets[i] = q.target
	}
	for i, seen := range m.g.lookUpMany(m.ctx, targets) {
		q := open[i]
		q.rejected, q.stale = seen.rejected, seen.stale
		switch seen.verdict {
		case hit:
			m.done(q, seen.result, seen.errs)
		case hitAndStale:
			stale = append(stale, q)
			m.done(q, seen.result, nil)
		case hitAndEarly:
			early = append(early, q)
			m.done(q, seen.result, nil)
		case miss:
			missing = append(missing, q)
		default:
			if q.mayLoadLocally() {
				unobtainable = append(unobtainable, q)
			} else {
				m.done(q, Result[T]{}, seen.errs)
			}
		}
	}
	m.g.refresh(stale, false)
	m.g.refresh(early, true)
	return missing, unobtainable
}

// await waits for the outcomes of all requests, and returns those that can't decode
// theirs.
func (m *many[T]) await(waiting []*request[T]) (lookAgain []*request[T]) {
	left := map[*request[T]]bool{} // that have no outcome yet
	for _, q := range waiting {
		left[q] = true
		defer q.waitOver()
	}
	// Also where a loader's panic is raised again here.
	defer func() {
		for q := range left {
			q.leave(false)
		}
	}()
	var soft <-chan time.Time
	if m.g.cfg.SoftTimeout > 0 {
		timer := time.NewTimer(m.g.cfg.SoftTimeout)
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
					m.done(q, r, errs)
				}
			case <-soft:
				soft = nil
				m.serveStale(left)
			case <-m.ctx.Done():
				delete(left, q)
				q.leave(false)
				m.done(q, Result[T]{}, []error{m.ctx.Err()})
			}
		}
	}
	return lookAgain
}

// serveStale serves the requests that have a stale value and no outcome yet.
func (m *many[T]) serveStale(left map[*request[T]]bool) {
	for q := range left {
		if q.stale != nil && len(q.outcomes) == 0 {
			q.leave(true)
			delete(left, q)
			m.done(q, *q.stale, nil)
		}
	}
}
