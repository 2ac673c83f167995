package history

import (
	"fmt"
	"strings"
)

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
