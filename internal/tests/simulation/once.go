package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

// errJob is what a job says that fails.
var errJob = errors.New("the job failed")

// slotState is what happened to a slot of DoOnce: S6.
type slotState struct {
	key, name string
	keep      time.Duration // of all calls
	runs      []*slotRun
	done      []completion
}

// completion is when a slot was stored as complete, and until when that is remembered.
type completion struct{ at, until time.Time }

// slotRun is a call of the function that DoOnce runs.
type slotRun struct {
	client *client
	token  uint64
	began  time.Time
	over   bool
	err    error // what it returned
	stored bool  // as the one that completed the slot
	open   bool  // its DoOnce said that it did not complete it
}

// slot returns the state of a slot that a step names.
func (w *world) slot(st step) *slotState {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.slots[st.key+"/"+st.slot]
	if s == nil {
		s = &slotState{key: st.key, name: st.slot, keep: st.keep}
		w.slots[st.key+"/"+st.slot] = s
	}
	return s
}

// completeAt returns whether the slot was complete at some moment from one time to another. The world's lock is held.
func (w *world) completeAt(s *slotState, from, to time.Time) bool {
	return slices.ContainsFunc(s.done, func(d completion) bool {
		until := d.until
		for _, f := range w.leases.flushes {
			if f.After(d.at) && f.Before(until) {
				until = f
			}
		}
		return !d.at.After(to) && until.After(from)
	})
}

// held of a DoOnce: the function is told a ctx and a token.
type slotLease struct{ ctx context.Context }

func (l slotLease) Context() context.Context                  { return l.ctx }
func (slotLease) Deadline() time.Time                         { return time.Time{} }
func (slotLease) ID() string                                  { return "" }
func (slotLease) Extend(context.Context, time.Duration) error { return errors.ErrUnsupported }

// doOnce is a DoOnce or TryDoOnce.
func (w *world) doOnce(c *client, st step) {
	b := &belief{client: c, kind: "mtx", key: st.key, permits: 1, asked: time.Now(), alone: true}
	good := w.good(c, b.asked)
	ctx, cancel, patient := c.patience(st)
	defer cancel()
	w.asksFor(b, !st.try, false)
	slot := w.slot(st)
	call := c.mtx.DoOnce
	if st.try {
		call = c.mtx.TryDoOnce
	}
	var r *slotRun
	stopped := false
	ran, err := call(ctx, st.key, st.slot, st.keep, func(ctx context.Context, token uint64) error {
		stopped = !patient()
		r = w.runSlot(ctx, b, slot, st, token)
		return r.err
	})
	now := time.Now()
	stopped = stopped || r == nil && !patient()
	ending := w.returned(b, now, err)
	if w.over() || c.dead.Load() {
		return
	}
	switch {
	case ran != (r != nil):
		w.fail("S6", "%s says %v, %v; that it was run is %v", st, ran, err, r != nil)
	case ran:
		w.ranSlot(b, slot, r, st, err, good && w.calm(b.asked, now), ending)
	case err != nil:
		// A caller that has the lock asks whether the slot was completed meanwhile. As a ctx ends then, the slot is not known.
		asks := errors.Is(err, context.Canceled) && slices.ContainsFunc(slices.Collect(maps.Values(w.standing("mtx", st.key).held)),
			func(l listed) bool { return l.label == c.label })
		w.refused(b, st, err, good && !asks, stopped, ending)
	default:
		w.note("slots found complete")
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failIf(!w.completeAt(slot, b.asked, now), "S6", "%s says that the slot is complete, and it is not", st)
	}
}

// runSlot is the function that a DoOnce runs.
func (w *world) runSlot(ctx context.Context, b *belief, slot *slotState, st step, token uint64) *slotRun {
	r := &slotRun{client: b.client, token: token, began: time.Now()}
	b.lease, b.token, b.from = slotLease{ctx}, token, r.began
	w.mu.Lock()
	delete(w.leases.waiting, b)
	w.leases.uses(b.client, b.kind, b.key, r.began)
	slot.runs = append(slot.runs, r)
	w.mu.Unlock()
	w.note("runs of slots")
	if ctx.Err() == nil && !b.client.dead.Load() {
		w.begin(b)
		w.mu.Lock()
		w.failIf(!b.unsure && w.completeAt(slot, r.began, r.began), "S6", "%s is run at %v, after it was completed", st, w.since(r.began))
		w.mu.Unlock()
	}
	timer := time.NewTimer(st.hold)
	defer timer.Stop()
	lost := ctx.Done()
	for waits := true; waits; {
		select {
		case <-timer.C:
			waits = false
		case <-lost:
			lost = nil
			w.mu.Lock()
			delete(w.leases.beliefs, b)
			w.mu.Unlock()
			waits = !st.obeys // else it goes on, although it holds nothing
		case <-w.failed:
			waits = false
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.leases.beliefs, b)
	w.leases.uses(b.client, b.kind, b.key, time.Now())
	r.over = true
	switch {
	case st.fails:
		r.err = errJob
	case lost == nil && st.obeys:
		r.err = context.Cause(ctx)
	}
	return r
}

// ranSlot judges what a DoOnce says that ran its function.
func (w *world) ranSlot(b *belief, slot *slotState, r *slotRun, st step, err error, good, ending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unsure := b.unsure
	switch {
	case err == nil:
		w.note("slots completed")
		w.failIf(!r.stored, "S6", "%s says that it completed the slot, and that is not stored", st)
		return
	case errors.Is(err, leasehold.ErrUnavailable) && r.err == nil && !errors.Is(err, leasehold.ErrLost):
		w.note("slots of unknown completion")
		w.failIf(good && !ending, "S4", "%s: %v, on a good network", st, err)
		return
	}
	r.open = true
	if r.stored && !w.leases.flushedSince(b.asked) { // else its repetition found nothing
		w.fail("S6", "%s says %v, and the slot was completed by it", st, err)
	}
	switch {
	case errors.Is(err, leasehold.ErrLost):
		w.note("runs of slots that lost their lock")
		w.failIf(good && !unsure && !w.wasRevoked(b, err), "S4", "%s: %v, on a good network", st, err)
	case errors.Is(err, leasehold.ErrClosed), errors.Is(err, leasehold.ErrReleased):
		w.note("runs of slots that were closed")
		w.failIf(!ending, "S4", "%s: %v, of a handle that is not closed", st, err)
	case r.err != nil && errors.Is(err, r.err):
		w.note("runs of slots that failed")
	default:
		w.fail("S4", "%s: %v", st, err)
	}
}

// wasRevoked reports whether err says that the lock of b was revoked, and a call did so: perhaps when the run was over,
// and its completion not yet stored. The world's lock is held.
func (w *world) wasRevoked(b *belief, err error) bool {
	var told *leasehold.RevokedError
	if !errors.As(err, &told) {
		return false
	}
	rec := w.leases.reasons[told.Reason]
	return rec != nil && rec.kind == b.kind && rec.key == b.key && rec.client == b.client
}

// doneOf returns the names in Redis of the slots that a script call may complete.
func doneOf(args []string) (names []string) {
	n, _ := strconv.Atoi(args[1])
	for _, name := range args[2:min(len(args), 2+n)] {
		if strings.Contains(name, ":done:") {
			names = append(names, name)
		}
	}
	return names
}

// completes judges what a script call did to a slot: nothing, or it completed it. That is done
// once, by the run of the latest grant, which has succeeded and was told nothing else. A run of an earlier grant may
// begin after it: its lock was revoked, and the message of the grant came late.
func (j *judge) completes(name string, before string) {
	w := j.w
	after, _ := w.mini.Get(name)
	if after == before {
		return
	}
	now := time.Now()
	_, rest, _ := strings.Cut(name, "{sim:")
	key, slot, _ := strings.Cut(rest, "}:done:")
	_, a, _ := readAttempt("mtx", key, after)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.slots[key+"/"+slot]
	if before != "" || s == nil || w.completeAt(s, now, now) {
		w.fail("S6", "%s became %q, and was %q", name, after, before)
		return
	}
	s.done = append(s.done, completion{now, now.Add(s.keep)})
	c := w.labels[a.label]
	var r *slotRun
	for _, one := range s.runs {
		if r == nil || one.token > r.token {
			r = one
		}
	}
	if r == nil || r.client != c {
		w.fail("S6", "%s was completed by %q, which does not run it", name, after)
		return
	}
	w.failIf(!r.over || r.err != nil || r.open || r.stored,
		"S6", "%s was completed by %q: its run of %v has returned %v, %v; it is known as open %v, as complete %v", name, after, w.since(r.began), r.over, r.err, r.open, r.stored)
	if ttl := w.mini.TTL(name); ttl != s.keep {
		w.fail("S6", "%s is remembered for %v, want %v", name, ttl, s.keep)
	}
	r.stored = true
}

// runsSlots checks that a client can run each slot that is open, and finds the others complete.
func (w *world) runsSlots(c *client) {
	w.mu.Lock()
	all := slices.SortedFunc(maps.Values(w.slots), func(a, b *slotState) int { return strings.Compare(a.key+a.name, b.key+b.name) })
	w.mu.Unlock()
	for _, s := range all {
		now := time.Now()
		w.mu.Lock()
		complete := w.completeAt(s, now, now)
		sure := complete == w.completeAt(s, now, now.Add(time.Minute)) && !slices.ContainsFunc(s.done, func(d completion) bool {
			return d.until.After(now) && d.until.Before(now.Add(time.Minute))
		})
		w.mu.Unlock()
		if !sure {
			continue
		}
		st := step{verb: once, client: c.number, key: s.key, slot: s.name, keep: s.keep, hold: time.Millisecond}
		w.try("once "+s.key+" "+s.name, c, func(ctx context.Context) error {
			b := &belief{client: c, kind: "mtx", key: s.key, permits: 1, asked: time.Now(), alone: true}
			w.asks(c, "mtx", s.key, 1)
			w.mu.Lock()
			w.leases.asks(b)
			w.mu.Unlock()
			ran, err := c.mtx.DoOnce(ctx, s.key, s.name, s.keep, func(ctx context.Context, token uint64) error {
				return w.runSlot(ctx, b, s, st, token).err
			})
			w.failIf(err == nil && ran == complete,
				"S6", "after the faults client %d is told %v of a slot of %s for which complete was %v: %s", c.number, ran, s.key, complete, s.name)
			return err
		})
	}
}

// isOfSlot reports whether a key in Redis is the completion of a slot that is remembered.
func (w *world) isOfSlot(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, rest, _ := strings.Cut(name, "{sim:")
	key, slot, ok := strings.Cut(rest, "}:done:")
	s, now := w.slots[key+"/"+slot], time.Now()
	return ok && s != nil && w.completeAt(s, now, now)
}
