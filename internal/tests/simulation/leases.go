package simulation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

// take is an Acquire or Lock: it waits, holds and gives back.
func (w *world) take(c *client, st step) {
	b := &belief{client: c, kind: kindOf(st.key), key: st.key, permits: max(1, st.permits), asked: time.Now()}
	good := w.good(c, b.asked)
	ctx, cancel, patient := c.patience(st)
	defer cancel()
	if st.wait == 0 && !st.try {
		ctx = context.Background() // nothing ends the call but the handle's end
	}
	w.asksFor(b, !st.try, false)
	release, err := b.acquire(ctx, c, st)
	b.from = time.Now()
	stopped := !patient()
	ending := w.returned(b, b.from, err)
	if w.over() || c.dead.Load() {
		return
	}
	if err != nil {
		w.refused(b, st, err, good, stopped, ending)
		return
	}
	w.note("held")
	w.begin(b)
	if st.extend > 0 {
		w.ops.Go(func() { w.extend(b, st.extend, good) })
	}
	if w.holds(c, b.lease.Context(), st.hold) {
		w.end(b, release, good)
	}
}

// patience is the ctx of a call, which ends as the step says, or with the client. What it also returns reports
// whether it has not ended so far; then it ends no more.
func (c *client) patience(st step) (ctx context.Context, cancel context.CancelFunc, patient func() bool) {
	ctx, cancel = context.WithCancel(c.ctx)
	if st.wait == 0 {
		return ctx, cancel, func() bool { return true }
	}
	return ctx, cancel, time.AfterFunc(st.wait, cancel).Stop
}

// asksFor notes that b is asked for, by a call that waits or tries, perhaps together with others.
func (w *world) asksFor(b *belief, waits, together bool) {
	w.asks(b.client, b.kind, b.key, b.permits)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases.asks(b)
	b.waits, b.together = waits, together
	w.leases.waiting[b] = struct{}{}
}

// returned notes that the call for b has returned. It reports whether the client is about to end.
func (w *world) returned(b *belief, now time.Time, err error) (ending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.leases.waiting, b)
	w.leases.uses(b.client, b.kind, b.key, now)
	if err != nil {
		w.leases.returned[b.client.label+b.kind+b.key] = now
	}
	return b.client.closing.Load() || b.client.dead.Load()
}

// holds waits until a lease is to be given back. It reports false if its client has died.
func (w *world) holds(c *client, lease context.Context, span time.Duration) bool {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lease.Done():
	case <-w.failed:
	case <-c.ctx.Done():
		return !c.dead.Load()
	}
	return true
}

// acquire calls the package.
func (b *belief) acquire(ctx context.Context, c *client, st step) (release func() error, err error) {
	if b.kind == "mtx" {
		take := c.mtx.Lock
		if st.try {
			take = c.mtx.TryLock
		}
		l, err := take(ctx, b.key)
		if err != nil {
			return nil, err
		}
		b.lease, b.token = l, l.Token()
		return l.Unlock, nil
	}
	take := c.permits(b.kind).AcquireN
	if st.try {
		take = c.permits(b.kind).TryAcquireN
	}
	l, err := take(ctx, b.key, b.permits)
	if err != nil {
		return nil, err
	}
	b.lease = l
	return l.Release, nil
}

// refused checks the error of an Acquire: S4.
func (w *world) refused(b *belief, st step, err error, good, stopped, ending bool) {
	now := time.Now()
	good = good && w.calm(b.asked, now)
	waited := now.Sub(b.asked)
	least, _ := w.limitAt(b.kind, b.key, b.asked, now)
	if b.kind == "tot" {
		leastTotal, _ := w.limitAt(b.kind, "", b.asked, now)
		least = min(least, leastTotal)
	}
	var revoked *leasehold.RevokedError
	switch {
	case errors.As(err, &revoked):
		w.revokedWaiter(b, st, revoked)
	case errors.Is(err, leasehold.ErrClosed):
		w.note("closed")
		w.failIf(!ending, "S4", "%s: %v, of a handle that is not closed", st, err)
	case errors.Is(err, context.Canceled):
		w.note("gave up")
		w.failIf(!stopped, "S4", "%s: %v, but nobody cancelled", st, err)
		if late := waited - st.wait; late > time.Millisecond {
			w.fail("ctx", "%s: returned %v after its ctx had ended", st, late)
		}
		w.failIf(good && st.wait > 100*time.Millisecond && !errors.Is(err, leasehold.ErrBusy),
			"S4", "%s: %v, on a good network", st, err)
	case errors.Is(err, leasehold.ErrUnavailable):
		w.note("unavailable")
		w.failIf(good && !ending, "S4", "%s: %v, on a good network", st, err)
	case errors.Is(err, leasehold.ErrBusy):
		w.note("busy")
		w.failIf(!st.try, "S4", "%s: %v, of a call that waits", st, err)
		w.busy(b, good, waited)
	case strings.Contains(err.Error(), "the limit is") && least < b.permits:
		w.note("limited")
	default:
		w.fail("S4", "%s: %v", st, err)
	}
}

// begin checks what a client came to believe: S1, S2.
func (w *world) begin(b *belief) {
	l := &w.leases
	w.mu.Lock()
	l.turnOf(b)
	w.mu.Unlock()
	w.lookAt(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumes(b)
	if l.flushedSince(b.counts()) {
		b.unsure = true // nobody can tell
	}
	if rec := l.revoked[b.lease.ID()]; rec != nil {
		b.unsure = true
		w.failIf(rec.waits && !l.flushedSince(rec.at), "revoke", "%s was granted to %s", b, rec)
	}
	for _, rec := range l.revoked {
		if rec.concerns(b) && !rec.at.Before(b.asked) {
			b.unsure = true // perhaps: before it was known to be granted
		}
	}
	l.beliefs[b] = struct{}{}
	if b.unsure {
		return
	}
	w.within(b, b.key, func(o *belief) bool { return o.key == b.key })
	if b.kind == "tot" {
		w.within(b, "", func(*belief) bool { return true })
	}
	if b.kind != "mtx" {
		return
	}
	if last := l.last[b.key]; last != nil && b.token <= last.token {
		w.fail("S2", "mtx %s: %s was granted after %s", b.key, b, last)
	}
	l.last[b.key] = b
}

// within checks that what is believed to be held, of the kind of b, is within the limit
// of a key, or within the total where that is "". The world's lock is held.
func (w *world) within(b *belief, key string, counts func(*belief) bool) {
	sum, most := 0, 0
	var all []string
	for o := range w.leases.beliefs {
		if o.kind != b.kind || o.unsure || !counts(o) {
			continue
		}
		_, m := w.limitAt(o.kind, key, o.enterAt, o.from)
		sum, most = sum+o.permits, max(most, m)
		all = append(all, o.String())
	}
	if sum > most {
		slices.Sort(all)
		w.fail("S1", "%s %q: %d permits are believed to be held, the limit is %d: %s", b.kind, key, sum, most, strings.Join(all, "; "))
	}
}

func (w *world) extend(b *belief, by time.Duration, good bool) {
	ctx, cancel := context.WithTimeout(b.client.ctx, 3*time.Second)
	defer cancel()
	before, now := b.lease.Deadline(), time.Now()
	err := b.lease.Extend(ctx, by)
	if w.over() || b.client.dead.Load() {
		return
	}
	after := b.lease.Deadline()
	switch {
	case after.Before(before):
		w.fail("S4", "Extend shortened a lease from %v to %v", w.since(before), w.since(after))
	case err == nil && after.Before(now.Add(by-by/20-20*time.Millisecond)):
		w.fail("S4", "Extend to %v from %v on left %v", by, w.since(now), w.since(after))
	case err != nil && good && w.calm(b.asked, time.Now()) && b.lease.Context().Err() == nil:
		w.fail("S4", "Extend: %v, on a good network", err)
	}
}

// end gives back, and checks what that says: S3, S4.
func (w *world) end(b *belief, release func() error, good bool) {
	now, deadline, ended := time.Now(), b.lease.Deadline(), b.lease.Context().Err() != nil
	why := context.Cause(b.lease.Context())
	w.mu.Lock()
	ending := b.client.closing.Load()
	unsure, rec := b.unsure, w.leases.revoked[b.lease.ID()]
	flushed := rec != nil && w.leases.flushedSince(rec.at)
	delete(w.leases.beliefs, b)
	w.leases.uses(b.client, b.kind, b.key, now)
	w.mu.Unlock()
	if w.over() {
		_ = release()
		return
	}
	w.failIf(now.After(deadline) && !(ended && now.Sub(deadline) < time.Millisecond),
		"S3", "%s was believed beyond its deadline %v", b, w.since(deadline))
	if !ended {
		w.lookAt(b)
	}
	lost := ended && errors.Is(why, leasehold.ErrLost)
	isTold := errors.Is(why, leasehold.ErrRevoked)
	w.revokedEnd(b, why, "its Context")
	if rec != nil && !rec.waits && !flushed && deadline.After(rec.ends.Add(-10*time.Millisecond)) {
		w.fail("S3", "%s was believed until %v, but would have lasted until %v: %s", b, w.since(deadline), w.since(rec.ends), rec)
	}
	w.failIf(rec != nil && lost && !isTold && !flushed && good && w.calm(b.asked, now),
		"revoke", "%s ended by %v, on a good network: %s", b, why, rec)
	if lost && !unsure {
		w.failIf(now.Before(deadline), "S4", "%s was lost %v before its deadline: %v", b, deadline.Sub(now), why)
		w.failIf(good && w.calm(b.asked, now), "S4", "%s was lost on a good network: %v", b, why)
	}
	err := release()
	w.uses(b.client, b.kind, b.key)
	if w.over() || b.client.dead.Load() {
		return
	}
	w.revokedEnd(b, err, "Release")
	if over := time.Now(); rec != nil && !ended && rec.at.Before(now) && !flushed && !b.turns() && over.Before(deadline) && good &&
		w.calm(b.asked, over) && !errors.Is(err, leasehold.ErrRevoked) && !b.client.closing.Load() {
		w.fail("revoke", "Release says %v, on a good network: %s", err, rec)
	}
	switch {
	case ended && errors.Is(why, leasehold.ErrClosed):
		w.note("closed while held")
		w.failIf(!ending || !errors.Is(err, leasehold.ErrReleased), "S4", "%s: Release after Close: %v", b, err)
	case lost:
		w.note("lost")
		w.failIf(!errors.Is(err, leasehold.ErrLost), "S4", "%s was lost, and Release says %v", b, err)
	case ended:
		w.fail("S4", "%s ended by %v", b, why)
	case err == nil:
		w.note("released")
	case errors.Is(err, leasehold.ErrUnavailable):
		w.note("release unavailable")
		w.failIf(good && w.calm(b.asked, time.Now()), "S4", "%s: Release: %v, on a good network", b, err)
	case errors.Is(err, leasehold.ErrLost):
		w.note("lost, then released")
		w.failIf(now.Before(deadline) && !w.flushedAfter(b.counts()) && !w.isRevoked(b),
			"S4", "%s: Release %v before its deadline: %v", b, deadline.Sub(now), err)
	case errors.Is(err, leasehold.ErrReleased) && (ending || b.client.closing.Load()):
		w.note("closed while held")
	default:
		w.fail("S4", "%s: Release: %v", b, err)
	}
}
