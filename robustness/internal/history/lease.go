package history

import (
	"fmt"
	"strings"
	"time"
)

// Lease is what a client believed to hold.
type Lease struct {
	*Operation               // that got it
	Until      int64         // until when its client believed in it: the end, exclusively
	Gone       int64         // when the server had surely let go; Forever where nobody knows
	Ahead      time.Duration // how far off its deadline was at most
	Since      int64         // when the first turn on the same lease was asked for
	Orphan     bool          // the server may have forgotten the lease before this turn on it
	Late       int64         // how long the client believed in it beyond its deadline
	Revoked    *Operation    // the Revoke of it, which ends what it counts for; nil: there was none
	Believed   int64         // Until, had nobody revoked it
}

// Leases are those that were granted on a key, or on all keys where it is "".
func (h *History) Leases(op, key string) []Lease {
	ends := map[string]*Operation{} // by the name of what they end
	for _, o := range h.Ops {
		if (o.Op == Release || o.Op == Unlock) && o.For != 0 {
			ends[Name(o.Worker, o.For)] = o
		}
	}
	var all []Lease
	for _, o := range h.Ops {
		if o.Op == op && o.Succeeded() && (key == "" || o.Key == key) {
			all = append(all, h.lease(o, ends[Name(o.Worker, o.ID)]))
		}
	}
	h.share(all)
	h.revoke(all)
	return all
}

// share finds the turns that were on one lease. All of them count as that lease: where the server may have
// forgotten it before a turn on it returned, the turn promises nothing but that its token is its own.
func (h *History) share(all []Lease) {
	first := map[string]int64{}
	for _, l := range all {
		if at, ok := first[l.Lease]; l.Lease != "" && (!ok || l.At < at) {
			first[l.Lease] = l.At
		}
	}
	for i := range all {
		l := &all[i]
		l.Since = l.At
		if at, ok := first[l.Lease]; ok {
			l.Since = at
		}
		for _, loss := range h.Losses {
			if l.Since < l.At && (loss.Key == "" || loss.Key == l.Key) && l.Since < loss.To && loss.From < l.Return {
				l.Orphan = true
			}
		}
	}
}

func (h *History) lease(o, end *Operation) Lease {
	l := Lease{Operation: o, Until: o.Ended, Gone: Forever}
	deadline := o.Last
	l.Ahead = time.Duration(o.Expires - o.Return)
	if end != nil {
		l.Ahead = max(l.Ahead, end.Ahead)
	}
	if end != nil && end.At < l.Until {
		l.Until, deadline = end.At, end.Deadline
	}
	if end != nil && end.Succeeded() {
		l.Gone = end.Return
	}
	if at, killed := h.Kills[o.Worker]; killed && at < l.Until {
		// What its last renewal came to nobody knows, nor whether it ran.
		l.Until, deadline = min(at, o.Expires), 0
	}
	if deadline != 0 && l.Until > deadline {
		// It may have been told late because it did not run. That is judged by
		// itself: what matters to others is when it had to stop.
		l.Late = l.Until - deadline
		l.Until = deadline
	}
	l.Until = max(l.Until, o.Return)
	return l
}

// StoodStill reports whether at some moment between from and to one of the processes
// did not run for longer than d: the machine may have stood still.
func (h *History) StoodStill(from, to int64, d time.Duration) bool {
	for worker := range h.Away {
		if h.AwayFor(worker, from, to) > int64(d) {
			return true
		}
	}
	return false
}

// AwayFor is how long a worker did not run between two moments.
func (h *History) AwayFor(worker string, from, to int64) int64 {
	var sum int64
	for _, s := range h.Away[worker] {
		if lo, hi := max(s.From, from), min(s.To, to); hi > lo {
			sum += hi - lo
		}
	}
	return sum
}

// Forgotten is until when a grant on a key that was asked for at from and believed in until to counted: less
// than to where the server may have forgotten it.
func (h *History) Forgotten(key string, from, to int64) int64 {
	for _, l := range h.Losses {
		if (l.Key == "" || l.Key == key) && from < l.To && l.From < to {
			to = l.From
		}
	}
	return to
}

// Reason is what the Revoke says that is the operation of that ID of a worker.
func Reason(worker string, id int) string { return fmt.Sprintf("by %s, operation %d.", worker, id) }

// Revocations are the calls of Revoke that took something away, or may have, by the ID of
// what they named; of several, the first to be called.
func (h *History) Revocations() map[string]*Operation {
	all := map[string]*Operation{}
	for _, o := range h.Ops { // by call
		if o.Op == Revoke && o.Class != NoLease && all[o.Event.Lease] == nil {
			all[o.Event.Lease] = o
		}
	}
	return all
}

// RevokedBy is the Revoke whose reason a text says; nil where it says none, or that of no call.
func (h *History) RevokedBy(text string) (by *Operation, says bool) {
	_, text, says = strings.Cut(text, "lease revoked: ")
	if !says {
		return nil, false
	}
	for _, o := range h.Ops {
		if o.Op == Revoke && strings.HasPrefix(text, Reason(o.Worker, o.ID)) {
			return o, true
		}
	}
	return nil, true
}

// revoke ends what the leases count for when their Revoke was called. A turn that began
// after that, on a lease of which its process had not learned yet, promises nothing.
func (h *History) revoke(all []Lease) {
	revoked := h.Revocations()
	for i := range all {
		l := &all[i]
		l.Believed = l.Until
		r := revoked[l.Lease]
		if r == nil {
			continue
		}
		l.Revoked = r
		if r.At <= l.Return {
			l.Orphan = true
			l.Until = l.Return
			continue
		}
		l.Until = min(l.Until, r.At)
		if r.Succeeded() {
			l.Gone = min(l.Gone, r.Return)
		}
	}
}
