package simulation

import (
	"strconv"
	"strings"
	"time"
)

// revokeCall is a call of one of the revoke scripts.
type revokeCall struct{ kind, key, id, reason string }

// parseRevoke reads the words of EVAL or EVALSHA.
func parseRevoke(args []string) (r revokeCall, ok bool) {
	if len(args) < 3 {
		return r, false
	}
	n, _ := strconv.Atoi(args[1])
	if n < 1 || len(args) < n+5 || !strings.HasSuffix(args[1+n], ":audit") {
		return r, false
	}
	name, words := strings.Split(args[2], ":"), args[2+n:]
	r.kind = name[1]
	switch {
	case name[2] == "{sim}":
		r.kind = "tot"
	case r.kind == "flt":
		r.key = strings.TrimSuffix(name[3], "}")
	default:
		r.key, words = strings.TrimSuffix(name[3], "}"), words[1:] // fenced comes first
	}
	r.id, r.reason = words[1], words[2]
	return r, true
}

// announce notes that a call may take an attempt away, before it does.
func (j *judge) announce(r revokeCall) {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.w.leases.revoking = r.id
}

// revoked notes what a call of revoke took away, if it did, by what stood on the server before and after it. What else
// such a call does the references of the scripts judge.
func (j *judge) revoked(r revokeCall, before, after standing) {
	w, now := j.w, time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.leases
	l.revoking = ""
	if !before.has(r.id) || after.has(r.id) {
		return
	}
	a, held := before.held[r.id]
	if !held {
		a, held = before.aside[r.id]
	}
	if !held {
		a = before.waiting[r.id]
	}
	rec := &revocation{
		kind: r.kind, key: a.key, id: r.id, reason: r.reason, client: w.labels[a.label], permits: a.permits,
		at: now, waits: !held, ends: a.ends,
	}
	if rec.client == nil {
		w.fail("revoke", "%s %s of %q was taken away, which is nobody's", r.kind, r.id, a.label)
		return
	}
	rec.unnoticed = rec.client.line.unnoticed()
	if before := l.revoked[r.id]; before != nil && !l.flushedSince(before.at) {
		w.fail("revoke", "it came back, and was taken away again: %s", before)
	}
	w.note("taken away from " + rec.kind)
	l.revoked[r.id], l.reasons[r.reason] = rec, rec
	l.untold = append(l.untold, rec)
	for b := range l.beliefs {
		if b.lease.ID() == r.id || rec.concerns(b) {
			b.unsure = true
		}
	}
}
