package simulation

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/multi"
)

// items reads the key of a step of package multi: "n,a*2" are the lock of n and two permits of a.
func (c *client) items(st step, asked time.Time) (all []multi.Item, beliefs []*belief) {
	for _, word := range strings.Split(st.key, ",") {
		key, times, _ := strings.Cut(word, "*")
		n, _ := strconv.Atoi(times)
		b := &belief{client: c, kind: kindOf(key), key: key, permits: max(1, n), asked: asked, alone: true}
		beliefs = append(beliefs, b)
		if b.kind == "mtx" {
			all = append(all, multi.Lock(c.mtx, key))
		} else {
			all = append(all, multi.Permits(c.permits(b.kind), key, b.permits))
		}
	}
	return all, beliefs
}

// together is the lease of several, as that of one of them.
type together struct{ *multi.Lease }

func (together) ID() string                                  { return "" }
func (together) Extend(context.Context, time.Duration) error { return errors.ErrUnsupported }

// takeSeveral takes several things at once, holds them and gives them back.
func (w *world) takeSeveral(c *client, st step) {
	asked := time.Now()
	items, all := c.items(st, asked)
	good := w.good(c, asked)
	ctx, cancel, patient := c.patience(st)
	defer cancel()
	for _, b := range all {
		w.asksFor(b, false, true)
	}
	take := multi.Acquire
	if st.try {
		take = multi.TryAcquire
	}
	l, err := take(ctx, items...)
	now := time.Now()
	stopped := !patient()
	ending := false
	for _, b := range all {
		ending = w.returned(b, now, err)
	}
	if w.over() || c.dead.Load() {
		return
	}
	if err != nil {
		w.refusedSeveral(all, st, err, good && w.calm(asked, now), stopped, ending)
		return
	}
	w.note("held together")
	for _, b := range all {
		b.lease, b.from = together{l}, now
		if b.kind == "mtx" {
			b.token = l.Token(c.mtx, b.key)
		}
		w.begin(b)
	}
	if w.holds(c, l.Context(), st.hold) {
		w.endSeveral(c, l, all, st, good)
	}
}

// refusedSeveral checks the error of a call that wanted several things: S4. What is then still held the watch finds.
func (w *world) refusedSeveral(all []*belief, st step, err error, good, stopped, ending bool) {
	now, c := time.Now(), all[0].client
	var revoked *leasehold.RevokedError
	switch {
	case errors.As(err, &revoked):
		w.mu.Lock()
		defer w.mu.Unlock()
		rec := w.leases.reasons[revoked.Reason]
		if rec == nil || rec.client != c {
			w.fail("revoke", "%s returned %v, and nobody revoked that", st, err)
			return
		}
		rec.told = true
		w.note("revoked while waiting together")
	case errors.Is(err, leasehold.ErrLost):
		w.note("lost while waiting together")
		w.failIf(good, "S4", "%s: %v, on a good network", st, err)
	case errors.Is(err, context.Canceled):
		w.note("gave up together")
		if late := now.Sub(all[0].asked) - st.wait; !stopped || late > time.Millisecond {
			w.fail("ctx", "%s: %v, %v after its ctx had ended", st, err, late)
		}
	default:
		// As for the item that ended the call; of a total, another limit may be in force.
		b := *all[0]
		for _, o := range all {
			least, _ := w.limitAt(o.kind, o.key, o.asked, now)
			if o.kind == "tot" {
				total, _ := w.limitAt(o.kind, "", o.asked, now)
				least = min(least, total)
			}
			if least < o.permits {
				b = *o
			}
		}
		b.askedInUse = true
		w.refused(&b, st, err, good, stopped, ending)
	}
}

// endSeveral gives back, and checks what that says: S3, S4.
func (w *world) endSeveral(c *client, l *multi.Lease, all []*belief, st step, good bool) {
	now, deadline, ended := time.Now(), l.Deadline(), l.Context().Err() != nil
	why := context.Cause(l.Context())
	w.mu.Lock()
	ending, unsure := c.closing.Load(), false
	for _, b := range all {
		unsure = unsure || b.unsure
		delete(w.leases.beliefs, b)
		w.leases.uses(c, b.kind, b.key, now)
	}
	w.mu.Unlock()
	w.failIf(now.After(deadline) && !ended && !w.over(), "S3", "%s was believed beyond its deadline %v", st, w.since(deadline))
	err := l.Release()
	over := time.Now()
	for _, b := range all {
		w.uses(c, b.kind, b.key)
	}
	ending = ending || c.closing.Load()
	if w.over() || c.dead.Load() {
		return
	}
	good = good && w.calm(all[0].asked, over)
	lost := ended && errors.Is(why, leasehold.ErrLost)
	switch {
	case lost && !errors.Is(err, leasehold.ErrLost) && !errors.Is(err, leasehold.ErrUnavailable):
		w.fail("S4", "%s was lost, and Release says %v", st, err)
	case errors.Is(err, leasehold.ErrLost):
		w.note("lost together")
		if revoked := (*leasehold.RevokedError)(nil); errors.As(err, &revoked) { // perhaps while it was given back
			w.mu.Lock()
			rec := w.leases.reasons[revoked.Reason]
			unsure = unsure || rec != nil && rec.client == c
			w.mu.Unlock()
		}
		w.failIf(good && !unsure && !w.flushedAfter(all[0].asked), "S4", "%s was lost on a good network: %v, %v", st, why, err)
	case errors.Is(err, leasehold.ErrUnavailable):
		w.note("release unavailable")
		w.failIf(good, "S4", "%s: Release: %v, on a good network", st, err)
	case errors.Is(err, leasehold.ErrReleased) || ended:
		w.note("closed while held")
		w.failIf(!ending, "S4", "%s: Release: %v; it ended by %v", st, err, why)
	case err == nil:
		w.note("released together")
	default:
		w.fail("S4", "%s: Release: %v", st, err)
	}
}
