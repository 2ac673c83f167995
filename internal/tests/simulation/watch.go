package simulation

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

func (b *belief) String() string {
	token := ""
	if b.token != 0 {
		token = fmt.Sprintf(", token %d", b.token)
	}
	return fmt.Sprintf("%s %s by client %d (permits %d, asked for at %v, had at %v%s)",
		b.kind, b.key, b.client.number, b.permits, b.client.w.since(b.asked), b.client.w.since(b.from), token)
}

// set reads a sorted set on the server.
func (w *world) set(key string) map[string]float64 {
	all, err := w.mini.SortedSet(key)
	if err != nil {
		return nil // there is none
	}
	// It is the server's own, which scripts change.
	w.mini.Lock()
	defer w.mini.Unlock()
	return maps.Clone(all)
}

// lookAt compares a lease that is believed in with what the server has: that
// must last for longer than the belief, by the margin at least. S3.
func (w *world) lookAt(b *belief) {
	w.mu.Lock()
	flushed := w.leases.flushedSince(b.counts())
	w.mu.Unlock()
	if flushed || b.alone { // see lookAtAlone
		return
	}
	// The deadline first: a renewal may move both meanwhile.
	deadline, now := b.lease.Deadline(), time.Now()
	a := w.standing(b.kind, b.key).held[b.lease.ID()]
	if b.lease.Context().Err() != nil || !now.Before(deadline) || b.client.dead.Load() || w.isRevoked(b) {
		return // over just now
	}
	if a.permits != b.permits {
		w.fail("S3", "%s is believed until %v; the server has %d of its permits", b, w.since(deadline), a.permits)
		return
	}
	if margin := 10 * time.Millisecond; a.ends.Sub(deadline) < margin {
		w.fail("S3", "%s is believed until %v, %v before it ends on the server; want %v at least", b, w.since(deadline), a.ends.Sub(deadline), margin)
	}
}

// heads is what the watch remembers of a key's queue.
type heads struct {
	used   int       // permits, at the last look
	at     time.Time // of that
	first  string    // the ID of the head of the queue, which there is room for
	since  time.Time // since when there is
	astray int       // looks in a row at which more wait than are queued
}

// watch looks at the server now and then, all through the run.
func (w *world) watch() {
	seen, rests := map[string]*heads{}, map[string]*blocked{}
	tick := time.NewTicker(aTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.ended:
			return
		case <-w.failed:
			return
		}
		for _, kind := range []string{"sem", "tot", "mtx"} {
			for _, key := range keysOf[kind] {
				w.watchLeases(seen, kind, key)
			}
		}
		w.watchKept(rests)
		w.watchBeliefs()
		w.watchRevoked()
		w.watchFlights()
	}
}

func (w *world) watchBeliefs() {
	w.mu.Lock()
	all := make([]*belief, 0, len(w.leases.beliefs))
	now := time.Now()
	for b := range w.leases.beliefs {
		if !b.unsure {
			all = append(all, b)
		} else if d := now.Sub(b.orphan); !b.orphan.IsZero() && d > max(semTTL, mtxTTL)+late && b.lease.Deadline().After(now) {
			w.fail("S4", "%s is believed until %v, %v after its keys were lost", b, w.since(b.lease.Deadline()), d)
		}
	}
	w.mu.Unlock()
	for _, b := range all {
		if w.lookAt(b); b.alone {
			w.lookAtAlone(b)
		}
	}
}

// lookAtAlone is lookAt for a lease without a known ID: its client must have one like it.
func (w *world) lookAtAlone(b *belief) {
	deadline, now := b.lease.Deadline(), time.Now()
	held := w.standing(b.kind, b.key).held
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, holds := w.leases.beliefs[b]; !holds || b.unsure || w.leases.revoking != "" || b.lease.Context().Err() != nil {
		return // over just now
	}
	if deadline.IsZero() { // of a DoOnce
		deadline = now
	} else {
		deadline = deadline.Add(10 * time.Millisecond)
	}
	for _, a := range held {
		if a.label == b.client.label && a.permits >= b.permits && !a.ends.Before(deadline) {
			return
		}
	}
	w.fail("S3", "%s is believed until %v; the server has %v", b, w.since(deadline), held)
}

// watchLeases checks the cap by what the server has (S1), that nobody waits for
// what is free (L1), and that what nobody needs is gone (L2).
func (w *world) watchLeases(seen map[string]*heads, kind, key string) {
	now := time.Now()
	s := w.standing(kind, key)
	used := s.used()
	h := seen[kind+key]
	if h == nil {
		h = &heads{at: w.start} // the limit may have been lowered since
		seen[kind+key] = h
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	least, most := w.limitAt(kind, key, h.at, now)
	w.failIf(used > max(h.used, most),
		"S1", "%s %s: the server has %d permits in use, the limit is %d", kind, key, used, most)
	h.used, h.at = used, now

	waits, busy := 0, false
	for b := range w.leases.waiting {
		if b.kind == kind && b.key == key {
			busy = true
			// A process with local turns has one place for all of its waiters.
			if b.waits && now.Sub(b.asked) > settled/2 && !b.client.closing.Load() && b.client.local == 0 {
				waits++
			}
		}
	}
	for b := range w.leases.beliefs {
		busy = busy || b.kind == kind && b.key == key
	}
	longest := ttls[kind] + 9*time.Second // Extend
	if last := w.leases.used[kind+key]; !busy && used > 0 && now.Sub(last) > longest+late {
		w.fail("L2", "%s %s: nobody has used it since %v, and %d permits are held", kind, key, w.since(last), used)
	}
	if !w.calm(now.Add(-settled), now) {
		h.first, h.astray = "", 0
		return
	}
	if waits > len(s.waiting) {
		if h.astray++; h.astray >= 4 {
			w.fail("L1", "%s %s: %d wait, but %d are in the queue", kind, key, waits, len(s.waiting))
		}
	} else {
		h.astray = 0
	}
	head, first := s.head(now)
	fits, longestWait := head != "" && used+first.permits <= least, 4*aTick
	if kind == "tot" && fits {
		fits, longestWait = w.fitsTotal(first.permits, h.at, now)
	}
	if !fits {
		h.first = ""
		return
	}
	if h.first != head {
		h.first, h.since = head, now
	}
	if d := now.Sub(h.since); d > longestWait {
		w.fail("L1", "%s %s: %d permits are in use, the limit is %d, and for %v somebody waits for %d", kind, key, used, least, d, first.permits)
	}
}

// fitsTotal reports whether there is room for n permits under the total, and for how long they may stay free although
// a request waits for them: a request that does not fit holds up the others, and stands aside for up to 8 s.
func (w *world) fitsTotal(n int, from, now time.Time) (fits bool, longest time.Duration) {
	least, _ := w.limitAt("tot", "", from, now)
	fits = w.standing("tot", "").used()+n <= least
	for m := range w.set(redisKey("tot", "", "queue")) {
		m, _, _ = strings.Cut(m, "+")
		words := strings.Split(m, ".") // handle, seq, permits, ttl, limit, share, total
		if len(words) != 7 || words[2] != "1" || words[6] != strconv.Itoa(total) {
			return fits, 20 * time.Second
		}
	}
	return fits, 4 * aTick
}

// watchFlights checks that one process at a time has the right to load (S5), and
// that nobody waits for longer than two loads (L1).
func (w *world) watchFlights() {
	now := time.Now()
	for _, key := range flightKeys {
		if n := len(w.standing("flt", key).held); n > 1 {
			w.fail("S5", "%d processes have the right to load %s", n, key)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.flights.calls {
		d := now.Sub(a.from)
		if !a.to.IsZero() || a.client.dead.Load() || d <= longestDo+settled {
			continue
		}
		// One whose load is revoked asks anew.
		most := longestDo + settled + time.Duration(w.revokedLoads(a.from))*longestLoad
		if d > most && w.calm(a.from.Add(-settled), now) {
			w.fail("L1", "%s has not returned after %v", a.st, d)
		}
	}
}
