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

// revoked judges what a call of revoke did, by what stood on the server before and after
// it, and notes what it took away: that attempt and no other's (or one that is passed on,
// or has died), once, and all of it; and what it handed on fits, and is the next one's.
func (j *judge) revoked(r revokeCall, before, after standing) {
	w, now := j.w, time.Now()
	if !before.has(r.id) || after.has(r.id) {
		w.mu.Lock()
		w.leases.revoking = ""
		w.mu.Unlock()
	} else {
		j.noteRevocation(r, before, now)
	}
	for id, a := range before.held {
		if _, is := after.held[id]; !is && id != r.id && a.ends.After(now) {
			w.fail("revoke", "a revoke of %s %s took %s away, which is held", r.kind, r.id, id)
		}
	}
	if r.kind == "flt" {
		return // those that wait for a load enter again
	}
	signed := now.Add(overdue)
	inUse := after.used()
	for id, a := range after.held {
		if _, was := before.held[id]; was {
			continue
		}
		for other, q := range after.waiting {
			w.failIf(q.key == a.key && q.ticket < before.waiting[id].ticket && before.waiting[other].ends.After(signed),
				"fifo", "a revoke of %s handed on to %s, and %s has waited for longer", r.id, id, other)
		}
	}
	if r.kind != "tot" && len(after.held) > 0 && inUse > j.limitNow(r) {
		for id := range after.held {
			if _, was := before.held[id]; !was {
				w.fail("S1", "a revoke of %s handed on to %s: %d permits of %s are in use, the limit is %d", r.id, id, inUse, r.key, j.limitNow(r))
			}
		}
	}
	for id, a := range before.waiting {
		_, granted := after.held[id]
		if _, waits := after.waiting[id]; !waits && !granted && id != r.id && a.permits == 1 && a.ends.After(now) {
			w.fail("revoke", "a revoke of %s took the place of %s away", r.id, id)
		}
	}
}

// limitNow is the limit of a semaphore's key or of a lock.
func (j *judge) limitNow(r revokeCall) int {
	if r.kind == "mtx" {
		return 1
	}
	stored, err := j.w.mini.Get(redisKey(r.kind, r.key, "limit"))
	if n, bad := strconv.Atoi(stored); err == nil && bad == nil {
		return n
	}
	return permits
}

// noteRevocation notes what a call took away.
func (j *judge) noteRevocation(r revokeCall, before standing, now time.Time) {
	w := j.w
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.leases
	l.revoking = ""
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
		w.failLocked("revoke", "%s %s of %q was taken away, which is nobody's", r.kind, r.id, a.label)
		return
	}
	rec.unnoticed = rec.client.line.unnoticed()
	if before := l.revoked[r.id]; before != nil && !l.flushedSince(before.at) {
		w.failLocked("revoke", "it came back, and was taken away again: %s", before)
	}
	w.tally["taken away from "+rec.kind]++
	l.revoked[r.id], l.reasons[r.reason] = rec, rec
	l.untold = append(l.untold, rec)
	for b := range l.beliefs {
		if b.lease.ID() == r.id || rec.concerns(b) {
			b.unsure = true
		}
	}
}
