package singleflight

import "github.com/leasehold-go/leasehold/internal/loads"

// A local flight loads without Redis, for LoadLocally. Nobody tells it of an invalidation by
// another process. So a call may join it only if the call began before the loader was called:
// an invalidation that returned before the call began may be newer than the load. Later calls
// share the next local flight of the key, which is parked until this one ends.
//
// Whether a call began before is told by a counter of the loaders' calls and not by a clock,
// which may show the same time twice.

// joinLocally puts each request into the local flight of its key, into the one that is parked
// behind that, or into a new one. New flights load together. Only requests that could not reach
// Redis use it. Called with the lock; the group is open.
func (g *Group[T]) joinLocally(all []*request[T]) {
	var created []*flight[T]
	for _, q := range all {
		f := g.localFlights[q.key]
		switch {
		case f == nil:
			f = g.newFlight(q.target, loads.Rejected{}, true)
			g.localFlights[q.key] = f
			created = append(created, f)
		case f.called != 0 && q.begun >= f.called:
			if f.next == nil {
				f.next = g.newFlight(q.target, loads.Rejected{}, true)
				f.next.parkedBy = all[0]
			}
			f = f.next
		}
		f.add(q)
	}
	g.loadWithoutRedis(created, all[0])
}

// loadAlone makes requests load for themselves, because they cannot decode what others load.
// No other request can join their flights. Called with the lock; the group is open.
func (g *Group[T]) loadAlone(all []*request[T]) {
	created := make([]*flight[T], len(all))
	for i, q := range all {
		created[i] = g.newFlight(q.target, loads.Rejected{}, true)
		created[i].alone = true
		created[i].add(q)
	}
	g.loadWithoutRedis(created, all[0])
}

// loadWithoutRedis starts one load of flights that have no leases, and so store nothing. Called
// with the lock.
func (g *Group[T]) loadWithoutRedis(flights []*flight[T], by *request[T]) {
	if len(flights) > 0 {
		d := &load[T]{g: g, by: by}
		g.active.Go(func() { d.run(flights) })
	}
}

// free makes the flight that is parked behind f, if there is one, the local flight of its key.
// It starts once the caller lets go of the lock, with the others that are freed until then.
// Called with the lock, when nothing joins f any more.
func (g *Group[T]) free(f *flight[T]) {
	parked := f.next
	f.next = nil
	if parked == nil || g.closed.Load() {
		return
	}
	g.localFlights[f.key] = parked
	if g.freed = append(g.freed, parked); len(g.freed) == 1 {
		g.active.Go(g.loadFreed)
	}
}

// loadFreed starts the flights that were freed, one load for each call that parked some.
func (g *Group[T]) loadFreed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	freed := g.freed
	g.freed = nil
	if g.closed.Load() {
		return // Close has answered their requests
	}
	together := map[*request[T]][]*flight[T]{}
	var order []*request[T]
	for _, f := range freed {
		if len(f.requests) == 0 {
			f.takeRequests() // all of its callers have left
			continue
		}
		if together[f.parkedBy] == nil {
			order = append(order, f.parkedBy)
		}
		together[f.parkedBy] = append(together[f.parkedBy], f)
	}
	for _, by := range order {
		g.loadWithoutRedis(together[by], by)
	}
}
