package check

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// revocations checks that nobody is told of a revocation but of what a Revoke named, with
// its reason; that a Revoke which did it never says that there is no such lease; and that
// a holder is told within a TTL, since no renewal succeeds after it.
func (r *Report) revocations(h *history.History) {
	told := map[*history.Operation]bool{}
	tell := func(o *history.Operation, id, text string) {
		by, says := h.RevokedBy(text)
		switch {
		case !says:
		case by == nil || by.Key != o.Key && !o.Many:
			r.bad("revoked", o.Key, "%s %s was told %q: nobody revoked that", o.Op, name(o), text)
		case id != "" && by.Event.Lease != id:
			r.bad("revoked", o.Key, "%s %s has %s and was told %q, which was said of %s", o.Op, name(o), id, text, by.Event.Lease)
		default:
			told[by] = true
		}
	}
	ids := map[string]string{} // of leases, by the name of what got them
	for _, o := range h.Ops {
		if o.Lease != "" {
			ids[name(o)] = o.Lease
		}
	}
	for _, o := range h.Ops {
		switch o.Op {
		case history.Acquire, history.Lock, history.Load:
			tell(o, o.Lease, o.Text)
			tell(o, o.Lease, o.Why)
		case history.Read:
			if o.Class == history.Revoked {
				r.bad("revoked", o.Key, "read %s did not ask anew: %s", name(o), o.Text)
			}
		case history.Release, history.Unlock:
			tell(o, ids[history.Name(o.Worker, o.For)], o.Text)
		}
	}
	for by := range told {
		if by.Class == history.NoLease {
			r.bad("revoked", by.Key, "%s said that there is no such lease as %s, and revoked it", name(by), by.Event.Lease)
		}
	}
	for _, op := range []string{history.Acquire, history.Lock} {
		for _, l := range h.Leases(op, "") {
			if l.Revoked == nil || !l.Revoked.Succeeded() {
				continue
			}
			end := l.Revoked.Return + int64(h.Terms.TTL)
			back := slices.ContainsFunc(h.Losses, func(x history.Loss) bool { return x.Revives && l.Revoked.At <= x.To && x.From < end })
			if beyond := l.Believed - end; beyond > 0 && !back {
				r.bad("told", l.Key, "%s %s was believed in for %v more than a TTL after its revocation had returned", op, name(l.Operation), time.Duration(beyond))
			}
		}
	}
	r.listings(h)
	r.loadsRevoked(h)
}

// listings checks what Inspect showed where the server forgot nothing: each lease that was
// held during all of the call, and none that had been given back or revoked before.
func (r *Report) listings(h *history.History) {
	if len(h.Losses) > 0 {
		return
	}
	var leases []history.Lease
	for _, op := range []string{history.Acquire, history.Lock} {
		leases = append(leases, h.Leases(op, "")...)
	}
	revoked := h.Revocations()
	for _, o := range h.Ops {
		if o.Op != history.Inspect || !o.Succeeded() {
			continue
		}
		r.Listings++
		for _, l := range leases {
			if l.Key != o.Key {
				continue
			}
			n := max(l.Permits, 1)
			if l.Return < o.At && l.Until > o.Return && !l.Orphan && o.Shown[l.Lease] != n {
				r.bad("listing", o.Key, "%s shows %d permits of %s, which has %d: from %d to %d", name(o), o.Shown[l.Lease], l.Lease, n, l.Return, l.Until)
			}
			// Several turns may be on one lease of another kind.
			if l.Key[0] == 't' && l.Gone < o.At && o.Shown[l.Lease] > 0 {
				r.bad("listing", o.Key, "%s shows %s, which was gone at %d", name(o), l.Lease, l.Gone)
			}
		}
		for id := range o.Shown {
			if by := revoked[id]; by != nil && by.Succeeded() && by.Return < o.At {
				r.bad("listing", o.Key, "%s shows %s, which %s had revoked", name(o), id, name(by))
			}
		}
	}
	for _, by := range revoked {
		if by.Succeeded() {
			r.Revoked++
		}
	}
}

// loadsRevoked checks that what a load gave after its ctx had ended by a revocation went to its own process only.
func (r *Report) loadsRevoked(h *history.History) {
	revoked := map[string]*history.Operation{}
	for _, o := range h.Ops {
		if _, says := h.RevokedBy(o.Why); says && o.Op == history.Load && !o.Many {
			revoked[name(o)] = o
		}
	}
	for _, o := range h.Ops {
		for key, value := range o.Values {
			if l := revoked[value]; l != nil && l.Worker != o.Worker {
				r.bad("revoked", key, "read %s saw load %s, which was revoked before it returned", name(o), value)
			}
		}
	}
}
