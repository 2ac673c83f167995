package simulation

import (
	"slices"
	"time"
)

// What docs/keep.md promises of leases that rest in a process.
const (
	// handedIn is longer than two round trips, in which what rests is given back.
	handedIn = 300 * time.Millisecond
	// recalledIn is how long it takes until a process asks whose recall was lost.
	recalledIn = time.Second
	// forgottenFor is how long turns may begin on a lease that Redis has forgotten.
	forgottenFor = 2 * time.Second
	// triesFor is the longest that a TryAcquire waits for leases that others keep.
	triesFor = 250 * time.Millisecond
)

// keepFor is the KeepFor of a client.
func (w *world) keepFor(number int) time.Duration {
	for _, st := range w.script {
		if st.verb == keeps && (st.client == number || st.client == everybody) {
			return st.keep
		}
	}
	return 0
}

// resumes judges a turn from memory. The world's lock is held.
func (w *world) resumes(b *belief) {
	if b.client.keep == 0 || !b.resumed {
		return
	}
	w.note("turns on kept leases")
	first := w.leases.firstAt[b.lease.ID()]
	rested := b.asked.Sub(b.unusedSince)
	if first.Before(b.unusedSince) && rested > b.client.keep+time.Millisecond { // else another call took it since
		w.fail("keep", "%s is a turn on a lease that had rested for %v, KeepFor is %v", b, rested, b.client.keep)
	}
	for _, f := range w.leases.flushes {
		if d := b.from.Sub(f); first.Before(f) && d > forgottenFor+b.client.local+handedIn {
			w.fail("keep", "%s is a turn on a lease that Redis forgot at %v", b, w.since(f))
		}
	}
}

// busy judges a TryAcquire that says so: it must not if nobody uses the key, and it says so in time.
func (w *world) busy(b *belief, good bool, waited time.Duration) {
	if !good {
		return
	}
	w.failIf(waited > triesFor+handedIn,
		"S4", "a try of %s %s by client %d waited for %v", b.kind, b.key, b.client.number, waited)
	w.mu.Lock()
	unused := !b.askedInUse && w.leases.calls[b.kind+b.key] == b.call && !w.leases.usedNow(nil, b.kind, b.key)
	w.mu.Unlock()
	w.failIf(unused && b.kind != "tot" && b.permits == 1 && w.allNoticed(),
		"S4", "a try of %s %s by client %d at %v was refused, although nobody used it", b.kind, b.key, b.client.number, w.since(b.asked))
}

// allNoticed reports whether no client has connections of no use.
func (w *world) allNoticed() bool {
	return !slices.ContainsFunc(w.living(), func(c *client) bool { return c.line.unnoticed() })
}

// rests is what a client has on the server and does not use.
type rests struct {
	client  *client
	permits int
	since   time.Time // the last use
	waits   bool      // it has a call under way
}

// resting lists the processes that have permits of a key which nobody uses. The world's lock is held.
func (w *world) resting(kind, key string, held map[string]listed) (all []*rests, inUse int) {
	of := map[*client]*rests{}
	for _, a := range held {
		c := w.labels[a.label]
		if c == nil {
			continue
		}
		if of[c] == nil {
			of[c] = &rests{client: c, since: w.leases.usedBy[c.label+kind+key]}
			all = append(all, of[c])
		}
		of[c].permits += a.permits
	}
	for b := range w.leases.beliefs {
		if r := of[b.client]; r != nil && b.kind == kind && b.key == key {
			r.permits -= b.permits
			inUse += b.permits
		}
	}
	for b := range w.leases.waiting {
		if r := of[b.client]; r != nil && b.kind == kind && b.key == key {
			r.waits = true
			if b.together {
				inUse, r.permits = inUse+max(0, r.permits), 0
			}
		}
	}
	return slices.DeleteFunc(all, func(r *rests) bool { return r.permits <= 0 }), inUse
}

// blocked is a waiter at the head of a queue that waits only for what rests.
type blocked struct {
	first string // its ID
	since time.Time
}

// watchKept checks that what rests is given back KeepFor after its last use, and as soon as
// somebody waits for it; and that nothing is held for which there was an error. This is judged
// where no fault was met, or only messages were lost.
func (w *world) watchKept(seen map[string]*blocked) {
	if !slices.ContainsFunc(w.script, func(st step) bool { return st.verb == keeps }) {
		return
	}
	now := time.Now()
	heard := w.calm(now.Add(-settled), now)
	healthy := heard || w.calmBut(messages, now.Add(-settled), now)
	healthy = healthy && w.allNoticed()
	for _, kind := range []string{"sem", "mtx"} {
		for _, key := range keysOf[kind] {
			if !healthy {
				delete(seen, kind+key)
				continue
			}
			w.watchKeptOf(seen, kind, key, now, heard)
		}
	}
}

func (w *world) watchKeptOf(seen map[string]*blocked, kind, key string, now time.Time, heard bool) {
	s := w.standing(kind, key)
	head, first := s.head(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	all, inUse := w.resting(kind, key, s.held)
	least, _ := w.limitAt(kind, key, now, now)
	idle := 0
	for _, r := range all {
		switch {
		case r.client.closing.Load() || r.client.dead.Load():
		case r.waits:
			if heard {
				idle += r.permits
			}
		default:
			idle += r.permits
			w.note("looks at what rests")
			if d := now.Sub(r.since); d > r.client.keep+handedIn {
				w.fail("keep", "%s %s: client %d has %d permits that it last used %v ago, KeepFor is %v", kind, key, r.client.number, r.permits, d, r.client.keep)
			}
		}
	}
	if head == "" || idle == 0 || inUse+first.permits > least {
		delete(seen, kind+key)
		return
	}
	if seen[kind+key] == nil || seen[kind+key].first != head {
		seen[kind+key] = &blocked{head, now}
	}
	most := handedIn
	if !heard {
		most += recalledIn
	}
	if d := now.Sub(seen[kind+key].since); d > most {
		w.fail("keep", "%s %s: for %v somebody has waited for %d permits, while %d rest", kind, key, d, first.permits, idle)
	}
}

// calmBut is calm that takes no account of what was lost in a direction, if one is given.
func (w *world) calmBut(dir string, from, to time.Time) bool {
	a, b := w.since(from), w.since(to)
	for _, f := range w.faults {
		if until, _ := f.fault(); f.at <= b && until >= a && (dir == "" || f.verb != lose || f.dir != dir) {
			return false
		}
	}
	return true
}

// wantNothingOf checks that a client whose handles were closed has nothing on the server.
func (w *world) wantNothingOf(c *client) {
	for _, kind := range []string{"sem", "mtx"} {
		for _, key := range keysOf[kind] {
			s := w.standing(kind, key)
			for what, all := range map[string]map[string]listed{"lease": s.held, "waiter": s.waiting} {
				for id, a := range all {
					w.failIf(a.label == c.label,
						"L2", "client %d was closed, and %s %s still has its %s %s", c.number, kind, key, what, id)
				}
			}
		}
	}
}
