package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

// revocation is an attempt that a call of revoke took away, as the server was seen to before and after that call.
type revocation struct {
	kind, key, id string
	reason        string // of the call that did it: no two calls have the same
	client        *client
	permits       int
	at            time.Time
	waits         bool      // it took a place in the queue
	ends          time.Time // until when the lease would have lasted
	told          bool      // an Acquire returned the reason
	unnoticed     bool      // its client had connections of no use: it may have given up before, and not have got through
}

func (r *revocation) String() string {
	what := "the lease"
	if r.waits {
		what = "the waiter"
	}
	return fmt.Sprintf("%s %s of client %d on %s %s, revoked at %v because %q", what, r.id, r.client.number, r.kind, r.key, r.client.w.since(r.at), r.reason)
}

// concerns reports whether it may be the lease of b, whose ID is not known, that was revoked.
func (r *revocation) concerns(b *belief) bool {
	return b.alone && b.client == r.client && b.kind == r.kind && b.key == r.key
}

const (
	// toldWithin is how soon a process learns of a revocation on a good network: by a hint.
	toldWithin = 500 * time.Millisecond
	// tombstone is how long a revoked attempt leaves one.
	tombstone = 30 * time.Second
)

// revoke inspects a key, and revokes one of what it shows: an operator's work.
func (w *world) revoke(c *client, st step) {
	l, ok := w.inspect(c, st)
	if !ok {
		return
	}
	var ids []string
	for _, h := range l.holders {
		ids = append(ids, h.ID)
	}
	if len(l.waiters) > 0 && (st.queued || len(ids) == 0) {
		ids = ids[:0]
		for _, q := range l.waiters {
			ids = append(ids, q.ID)
		}
	}
	if len(ids) == 0 {
		w.note("nothing to revoke")
		return
	}
	id := ids[st.pick%len(ids)]
	w.wait(w.since(time.Now()) + st.hold) // it may be given back, granted or lost meanwhile
	if done := w.revokeOnce(c, st, id); done && st.again {
		w.revokeOnce(c, st, id)
	}
}

// revokeOnce is a Revoke; it reports whether that returned nil.
func (w *world) revokeOnce(c *client, st step, id string) bool {
	if w.over() || c.dead.Load() {
		return false
	}
	ctx, cancel, patient := c.patience(st)
	defer cancel()
	defer patient()
	w.mu.Lock()
	w.leases.revokes++
	reason := fmt.Sprintf("operator %d says: the %dth", c.number, w.leases.revokes)
	w.mu.Unlock()
	kind, began := kindOf(st.key), time.Now()
	good := w.good(c, began)
	believed := w.believed(kind, st.key)[id]
	var err error
	switch kind {
	case "sem", "tot":
		err = c.permits(kind).Revoke(ctx, st.key, id, reason)
	case "mtx":
		err = c.mtx.Revoke(ctx, st.key, id, reason)
	default:
		err = c.group.Revoke(ctx, st.key, id, reason)
	}
	now := time.Now()
	stands := w.standing(kind, st.key).has(id)
	still := w.believed(kind, st.key)[id]
	if w.over() || c.dead.Load() {
		return false
	}
	w.mu.Lock()
	rec := w.leases.revoked[id]
	flushed := rec != nil && w.leases.flushedSince(rec.at) || w.leases.flushedSince(began)
	w.mu.Unlock()
	if d := now.Sub(began); d > operateWithin {
		w.fail("ctx", "%s took %v", st, d)
	}
	switch {
	case err == nil:
		w.note("revoked")
		if rec == nil {
			w.fail("revoke", "%s: Revoke of %s returned nil, and nothing was taken away", st, id)
		} else if stands && !flushed {
			w.fail("revoke", "%s returned nil, and it is on the server: %s", st, rec)
		}
	case errors.Is(err, leasehold.ErrNoLease):
		w.note("no such lease")
		w.failIf(rec != nil && !flushed, "revoke", "%s returned %v: %s", st, err, rec)
		w.failIf(believed != nil && still == believed && !flushed,
			"revoke", "%s returned %v: %s is held", st, err, believed)
	default:
		w.operatorError(c, st, "revoke", err, began, good, ctx.Err() != nil)
	}
	return err == nil
}

// forge sends what anybody could who may publish: hints for all that hold or wait, as if
// they had been revoked, and the latest messages once more.
func (w *world) forge() {
	w.mu.Lock()
	again := slices.Clone(w.messages)
	w.mu.Unlock()
	for _, m := range again {
		w.mini.Publish(m.Channel, m.Message)
	}
	for _, key := range w.mini.Keys() {
		if !strings.HasSuffix(key, ":holders") && !strings.HasSuffix(key, ":queue") && !strings.HasSuffix(key, ":aside") {
			continue
		}
		for member := range w.set(key) {
			if _, rest, ok := strings.Cut(member, ":"); ok { // of a family with a total
				member = rest
			}
			if words := strings.SplitN(member, ".", 3); len(words) == 3 {
				w.mini.Publish("leasehold:inbox:"+words[0], "R "+words[1])
			}
		}
	}
}

// maxMessages is how many of the latest messages are sent again by a forger.
const maxMessages = 40

// overhear keeps the latest messages.
func (w *world) overhear() (end func()) {
	sub := w.mini.NewSubscriber()
	sub.Psubscribe("leasehold:*")
	over := make(chan struct{})
	go func() {
		defer close(over)
		for m := range sub.Pmessages() {
			w.mu.Lock()
			if len(w.messages) == maxMessages {
				w.messages = w.messages[1:]
			}
			w.messages = append(w.messages, m)
			w.mu.Unlock()
		}
	}()
	return func() {
		sub.Punsubscribe("leasehold:*")
		sub.Close()
		<-over
	}
}

// isRevoked reports whether the lease of a belief was revoked, or a call is about to: from then on
// it counts for nothing, and its holder is to be told.
func (w *world) isRevoked(b *belief) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := b.lease.ID()
	return w.leases.revoked[id] != nil || w.leases.revoking == id
}

// revokedEnd judges what a holder is told at the end of a lease: that it was revoked is
// said of what was revoked, with the reason of the call that did it, and of nothing else.
func (w *world) revokedEnd(b *belief, err error, how string) {
	var told *leasehold.RevokedError
	if !errors.As(err, &told) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rec := w.leases.revoked[b.lease.ID()]
	switch {
	case rec == nil:
		w.fail("revoke", "%s: %s says %v, and nobody revoked it", b, how, err)
	case rec.reason != told.Reason:
		w.fail("revoke", "%s: %s says %v: %s", b, how, err, rec)
	default:
		w.note("told by " + how)
	}
}

// revokedWaiter judges that an Acquire returned the reason of a revocation.
func (w *world) revokedWaiter(b *belief, st step, told *leasehold.RevokedError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rec := w.leases.reasons[told.Reason]
	w.note("revoked while waiting")
	switch {
	case rec == nil || rec.kind != b.kind || rec.key != b.key || rec.client != b.client || rec.permits != b.permits:
		w.fail("revoke", "%s returned %v, and nobody revoked that", st, told)
	case b.turns():
		rec.told = true // one place for several callers
	case rec.told:
		w.fail("revoke", "%s returned %v, which another one was told", st, told)
	case rec.at.Before(b.asked):
		w.fail("revoke", "%s was called at %v and returned %v: %s", st, w.since(b.asked), told, rec)
	default:
		rec.told = true
	}
}

// turns reports whether several callers may share the lease.
func (b *belief) turns() bool { return !b.alone && b.client.turns(b.kind) }

func (c *client) turns(kind string) bool { return (c.local > 0 || c.keep > 0) && kind != "tot" }

// loadEnded judges why a loader's ctx ended: its load was revoked, and by the call that
// did it; and it is lost through faults alone. The world's lock is held.
func (w *world) loadEnded(l *loading, cause error) {
	var told *leasehold.RevokedError
	if !errors.As(cause, &told) {
		now := time.Now()
		w.failIf(errors.Is(cause, leasehold.ErrLost) && w.calm(l.began.Add(-settled), now) && !w.leases.flushedSince(l.began.Add(-settled)),
			"S4", "a load of %s by client %d since %v ended on a good network: %v", l.key, l.client.number, w.since(l.began), cause)
		return
	}
	w.note("loads revoked")
	rec := w.leases.reasons[told.Reason]
	if rec == nil || rec.kind != "flt" || rec.client != l.client || rec.key != l.key && !l.many {
		w.fail("revoke", "a load of %s by client %d ended by %v, and nobody revoked that", l.key, l.client.number, told)
		return
	}
	l.revoked = rec
}

// watchRevoked checks that those are told whose leases and places were revoked, that no lease is believed for
// longer than the server would have kept it, and that none comes back.
func (w *world) watchRevoked() {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	open := w.leases.untold[:0]
	for _, rec := range w.leases.untold {
		if now.Sub(rec.at) < longestLease+settled && !w.leases.flushedSince(rec.at) {
			open = append(open, rec)
			w.watchRevocation(rec, now)
		}
	}
	w.leases.untold = open
}

func (w *world) watchRevocation(rec *revocation, now time.Time) {
	for b := range w.leases.beliefs {
		if b.lease.ID() == rec.id && !rec.waits {
			if d := b.lease.Deadline(); d.After(rec.ends.Add(-10 * time.Millisecond)) {
				w.fail("S3", "%s is believed until %v, but would have lasted until %v: %s", b, w.since(d), w.since(rec.ends), rec)
			}
		}
	}
	c := rec.client
	if d := now.Sub(rec.at); d < toldWithin || c.dead.Load() || c.closing.Load() || rec.unnoticed || c.line.unnoticed() || !w.calm(rec.at.Add(-settled), now) {
		return
	}
	switch {
	case rec.kind == "flt":
		w.watchRevokedLoad(rec)
	case rec.waits:
		if ended := w.leases.returned[c.label+rec.kind+rec.key]; !rec.told && ended.Before(rec.at) && !c.turns(rec.kind) {
			w.fail("revoke", "nobody was told: %s", rec)
		}
	default:
		for b := range w.leases.beliefs {
			w.failIf(b.lease.ID() == rec.id && b.lease.Context().Err() == nil,
				"revoke", "its holder was not told: %s", rec)
		}
	}
}

// watchRevokedLoad checks that the one load that its client had of the key has ended.
func (w *world) watchRevokedLoad(rec *revocation) {
	var ran *loading
	for _, l := range w.flights.loads {
		if l.client != rec.client || l.key != rec.key || l.began.After(rec.at) || !l.to.IsZero() && l.to.Before(rec.at) {
			continue
		}
		if ran != nil || l.many {
			return // it may have been the other one's
		}
		ran = l
	}
	if ran != nil && ran.to.IsZero() && ran.began.Before(rec.at.Add(-time.Second/10)) {
		w.fail("revoke", "load of %s since %v was not told: %s", ran.key, w.since(ran.began), rec)
	}
}

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
