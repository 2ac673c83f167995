package lease

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
)

// Turns is the set of turns that a lease serves, one after the other. Each turn has its own
// MaxHold and MaxWait.
type Turns interface {
	// LeaseEnded is called on its own goroutine when the lease is lost or Close ends it.
	LeaseEnded()
}

// A TurnRequest is a Request whose lease may serve several turns of one process, one after the
// other.
type TurnRequest interface {
	Request
	// SetLastToken sets the fencing token of the last turn. Every leave that is prepared from
	// then on carries it.
	SetLastToken(token uint64)
	// RenewAndCount prepares a renewal that also reports how the resource is used. heldFor is
	// the time for which the lease has been held.
	RenewAndCount(term, heldFor time.Duration) *call.Call
	ReadRenewAndCount(reply []int64) (renewed []int64, use Use, err error)
}

// Use tells how a resource is used.
type Use struct{ Waiting, InUse, Limit int } // waiting requests; permits

// A Place is one place in the queue that a process holds for all of its callers. A caller that
// leaves does not take it away.
type Place struct{ w *waiter }

var errQueued = errors.New("queued")

// Enter is Acquire up to the server's first answer. If that is "queued", Enter returns the
// place, and the caller must call Await. maxWait ends the attempt as MaxWait ends an Acquire;
// with a nil maxWait only ctx and Close do.
func (m *Manager) Enter(ctx context.Context, a Attempt, maxWait <-chan time.Time, into *Lease) (at *Place, err error) {
	res, err := m.begin(ctx, a.Op, a.Key)
	if err != nil {
		return nil, err
	}
	w := &waiter{m: m, res: res, Attempt: a, maxWait: maxWait, returnsQueued: true}
	defer w.doneUnless(&at)
	w.newRequest()
	v, err := w.enter(ctx)
	return w.entered(ctx, v, err, into)
}

// doneUnless ends the operation unless it got a place. With a place the operation stays
// counted, so that Close waits until Await has returned.
func (w *waiter) doneUnless(at **Place) {
	if *at == nil {
		w.m.done()
	}
}

// entered continues after the outcome of an enter.
func (w *waiter) entered(ctx context.Context, v Verdict, err error, into *Lease) (*Place, error) {
	if _, err = w.follow(ctx, v, err, into); err == errQueued {
		return &Place{w}, nil
	}
	return nil, w.unlessClosed(err, into)
}

// Await waits until the place's turn has come, ctx ends or the handle is closed.
func (p *Place) Await(ctx context.Context, into *Lease) error {
	w := p.w
	defer w.m.done()
	w.returnsQueued, w.maxWait = false, nil
	_, err := w.follow(ctx, Verdict{Code: Queued}, nil, into)
	return w.unlessClosed(err, into)
}

// State returns the last state of the resource that Redis reported.
func (p *Place) State() State {
	p.w.m.mu.Lock()
	defer p.w.m.mu.Unlock()
	return *p.w.lastState()
}

// Silent reports whether Redis has not answered for a while: neither the asks for the place,
// nor the enter if it has to queue again.
func (p *Place) Silent() bool {
	p.w.m.mu.Lock()
	defer p.w.m.mu.Unlock()
	if g := p.w.group; g != nil {
		return g.silent()
	}
	return time.Since(p.w.leftGroup) > silence
}

// GiveBackAndEnter gives the lease back and enters again for the same process. One pipeline
// carries both calls, the enter first. So a TryAcquire of another process that arrives between
// the two finds a queue; and if nobody else waits, the leave grants to the new attempt at
// once. onLeft is called with the result that Release(op) would have, before the outcome of
// the new attempt is processed.
func (l *Lease) GiveBackAndEnter(ctx context.Context, op string, a Attempt, into *Lease, onLeft func(error)) (at *Place, err error) {
	m := l.m
	if !m.count() {
		m.done()
		onLeft(l.Release(op))
		return nil, m.fail(a.Op, l.res.Label(), leasehold.ErrClosed)
	}
	w := &waiter{m: m, res: l.res, Attempt: a, returnsQueued: true, queuesAgain: true}
	defer w.doneUnless(&at)
	w.newRequest()
	now, clock := m.client.Now(l.res.FirstKey())
	if clock != nil {
		// The clock of this server is not known (any more). The enter may have to wait for it,
		// so the leave goes first, by itself.
		onLeft(l.Release(op))
		v, err := w.enter(ctx)
		return w.entered(ctx, v, err, into)
	}
	if was := l.end(leasehold.ErrReleased); was != held {
		if was == lost {
			l.leaveLater()
			m.events.staleRelease(l)
			onLeft(l.fail(op))
		} else {
			onLeft(m.fail(op, l.res.Label(), leasehold.ErrReleased))
		}
		v, err := w.enter(ctx)
		return w.entered(ctx, v, err, into)
	}
	m.holds.add(time.Since(l.since))
	v, again, err := l.sendBoth(ctx, op, w, now, onLeft)
	if again {
		v, err = w.enter(ctx)
	}
	return w.entered(ctx, v, err, into)
}

// sendBoth sends the enter of w and the leave of l. now is the latest time that the server's
// clock can show.
func (l *Lease) sendBoth(ctx context.Context, op string, w *waiter, now int64, onLeft func(error)) (v Verdict, again bool, err error) {
	m, e := l.m, w.prepare(now)
	e.call.Confirm = call.Confirm{} // confirming needs a pipeline of its own; a grant is confirmed later
	leave := leaveCall(l.req, l.enterMayArriveUntil)
	replies, errs := m.client.DoBoth(m.client.Brief(), e.call, leave)
	left, leaveErr := replies[1], errs[1]

	// Process the leave first. A grant in its reply then finds a waiter that has not joined a
	// group, and no subscription is opened for it.
	var r LeaveReply
	if leaveErr == nil {
		r, leaveErr = l.req.ReadLeave(left)
	}
	m.reached(l.res, leaveErr)
	var failed []error
	if leaveErr == nil {
		failed = l.onLeft(r, leave.Sent, leave.Copied())
	} else {
		unknown := call.Classify(leaveErr) == call.Unknown
		if unknown {
			m.askSoon(l.res) // the lost reply may have carried grants to our own waiters
		}
		failed = l.leave(unknown)
	}
	onLeft(l.releaseError(op, failed))
	e.take(replies[0], errs[0])
	return w.onEnterDone(ctx, e)
}

// RenewAndCount renews the lease and asks how its resource is used. After an error the lease
// may not be held any more: it has ended, or its state is unknown.
func (l *Lease) RenewAndCount() (Use, error) {
	sent := time.Now()
	req := l.req.(TurnRequest)
	var use Use
	c := req.RenewAndCount(l.m.cfg.TTL, sent.Sub(l.since))
	c.Rank, c.By, c.Confirm = call.KeepsLease, l.Deadline(), l.m.confirm
	ints, err := l.m.client.Do(l.m.client.Brief(), c)
	if err == nil {
		ints, use, err = req.ReadRenewAndCount(ints)
	}
	if l.onRenewed(c, ints, err) {
		l.m.Go(l.endByFate)
		return use, errGone
	}
	return use, err
}

// TokenAheadOfClock reports whether the lease's token was certainly ahead of the server's
// clock when it was granted. That happens if the clock went back: the token then continues
// from the last one.
func (l *Lease) TokenAheadOfClock() bool {
	const slack = 1000 // µs: shorter than any lease, so the clock has passed it by the next grant
	now, unknown := l.m.client.Now(l.res.FirstKey())
	return unknown == nil && l.token > uint64(now-time.Since(l.since).Microseconds())+slack
}

// Ended returns the cause with which the lease's Context ends, or nil while it is held.
func (l *Lease) Ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cond == held {
		return nil
	}
	return l.fail("hold")
}

// CancelAtEnd makes the end of the lease call cancel, in the same step, with the cause with
// which the lease's own Context would end. It replaces the cancel of the turn before, and the
// Context of a lease that serves turns is not used. If the lease has ended already, cancel is
// called at once.
func (l *Lease) CancelAtEnd(cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel = cancel; l.cond != held {
		cancel(l.fail("hold"))
	}
}

// Since returns the time at which the process learned of the grant.
func (l *Lease) Since() time.Time { return l.since }

// Closing returns a channel that is closed when Close begins.
func (m *Manager) Closing() <-chan struct{} { return m.closing }

// BusyError returns the error of a request that found a resource in state s.
func (m *Manager) BusyError(s State) *leasehold.BusyError { return m.busyError(s) }

// EventTime returns the current time if there is an Observer or a Logger, else the zero time.
func (m *Manager) EventTime() time.Time { return m.events.now() }

// TurnAcquired reports the outcome of a request for a turn on a shared lease to the Observer.
func (m *Manager) TurnAcquired(ctx context.Context, permits int, waited bool, began time.Time, err error) {
	if m.events != nil {
		m.Observe(leasehold.Event{
			Kind: leasehold.EventAcquired, Outcome: acquireOutcome(ctx, err), Context: ctx,
			Duration: time.Since(began), Permits: permits, Waited: waited,
		})
	}
}

// TurnEnded reports to the Observer that a turn on a shared lease ended because of why.
func (m *Manager) TurnEnded(permits int, began time.Time, why error) {
	if m.events == nil {
		return
	}
	outcome := leasehold.OutcomeLost
	switch {
	case errors.Is(why, leasehold.ErrReleased):
		outcome = leasehold.OutcomeReleased
	case errors.Is(why, leasehold.ErrClosed):
		outcome = leasehold.OutcomeClosed
	case errors.Is(why, leasehold.ErrRevoked):
		outcome = leasehold.OutcomeRevoked
	case errors.Is(why, leasehold.ErrMaxHold):
		outcome = leasehold.OutcomeMaxHold
	}
	m.events.observe(leasehold.Event{Kind: leasehold.EventHoldEnded, Outcome: outcome, Duration: time.Since(began), Permits: permits})
}

// TurnHeldTooLong reports that MaxHold ended a turn. The lease then serves the next turn.
func (l *Lease) TurnHeldTooLong() { l.m.events.ended(l, leasehold.ErrMaxHold, false) }

// TurnReleasedLate reports that a turn was released after MaxHold had ended it.
func (l *Lease) TurnReleasedLate() { l.m.events.staleRelease(l) }

// HeldAt reports whether the lease is held at the time now.
func (l *Lease) HeldAt(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cond == held && now.Before(l.deadline)
}
