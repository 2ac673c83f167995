package singleflight

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
)

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
	const op = "do many"
	begun := g.called.Load()
	var open []*request[T]
	seen := map[string]bool{}
	for _, key := range all {
		t, err := g.target(op, key)
		if err != nil {
			return nil, err
		}
		if !seen[key] {
			seen[key] = true
			open = append(open, &request[T]{g: g, target: t, begun: begun, ctx: ctx, load: load})
		}
	}
	if g.closed.Load() {
		return nil, call.Fail(pkg, op, keys.Escape(g.cfg.Name), leasehold.ErrClosed)
	}
	m := &many[T]{g: g, ctx: ctx, began: g.now(), found: make(map[string]T, len(open)), failed: map[string]error{}}
	m.run(m.others(open))
	return m.found, failedKeys(m.failed)
}

// many is one call of DoMany.
type many[T any] struct {
	g     *Group[T]
	ctx   context.Context
	began time.Time // zero: there is no Observer

	found  map[string]T
	failed map[string]error
}

// done records what the call returns for one key.
func (m *many[T]) done(q *request[T], r Result[T], errs []error) {
	m.g.returned(m.began, r.Source, errs)
	if errs != nil {
		m.failed[q.key] = call.Fail(pkg, "do many", q.Label, errs...)
		return
	}
	m.found[q.key] = r.Value
}

// others returns the requests without those for keys that the load in which the caller runs is
// itself loading.
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

// join makes requests join flights, and returns the requests that have joined.
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

// lookUp serves from the cache what it can. It returns the other requests: those that are to
// join flights with Redis (missing) and without Redis (unobtainable).
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

// await waits for the outcomes of all requests. It returns the requests that cannot decode
// their outcome.
func (m *many[T]) await(waiting []*request[T]) (lookAgain []*request[T]) {
	left := map[*request[T]]bool{} // requests without an outcome yet
	for _, q := range waiting {
		left[q] = true
		defer q.waitOver()
	}
	// This also runs if the panic of a loader is raised again here.
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
