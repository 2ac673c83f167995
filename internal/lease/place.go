package lease

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
)

// Turns are what a lease serves, one after the other, each with a MaxHold and a MaxWait of
// its own.
type Turns interface {
	// LeaseEnded is called, on a goroutine of its own, when the lease is lost, or ended by
	// Close.
	LeaseEnded()
}

// TurnRequest is a Request whose lease may serve several turns of one process, one
// after the other.
type TurnRequest interface {
	Request
	// SetLastToken says which fencing token the last turn has: every leave that is
	// prepared from then on carries it.
	SetLastToken(token uint64)
	// RenewAndCount prepares a renewal, of a lease that has been held for heldFor, that
	// also tells how the resource is used.
	RenewAndCount(term, heldFor time.Duration) *call.Call
	ReadRenewAndCount(reply []int64) (renewed []int64, use Use, err error)
}

// Use is how a resource is used.
type Use struct{ Waiting, InUse, Limit int } // requests that wait; permits

// Place is a place in the queue that a process has for all of its callers. No caller
// can take it away by leaving.
type Place struct{ w *waiter }

var errQueued = errors.New("queued")

// Enter is Acquire as far as the server's first answer: where that is "queued", it
// returns the place, and Await is to be called. maxWait ends it as MaxWait ends an
// Acquire; nil: nothing but ctx and Close do.
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

// doneUnless counts an operation out that did not come to a place. A place stays
// counted, so that Close waits until Await has returned.
func (w *waiter) doneUnless(at **Place) {
	if *at == nil {
		w.m.done()
	}
}

// entered goes on after the outcome of an enter.
func (w *waiter) entered(ctx context.Context, v Verdict, err error, into *Lease) (*Place, error) {
	if _, err = w.follow(ctx, v, err, into); err == errQueued {
		return &Place{w}, nil
	}
	return nil, w.unlessClosed(err, into)
}

// Await waits for the turn of the place, until ctx ends or the handle is closed.
func (p *Place) Await(ctx context.Context, into *Lease) error {
	w := p.w
	defer w.m.done()
	w.returnsQueued, w.maxWait = false, nil
	_, err := w.follow(ctx, Verdict{Code: Queued}, nil, into)
	return w.unlessClosed(err, into)
}

// State is how busy the resource was, as Redis told last.
func (p *Place) State() State {
	p.w.m.mu.Lock()
	defer p.w.m.mu.Unlock()
	return *p.w.lastState()
}

// GiveBackAndEnter gives the lease back and enters again for the same process, in one
// pipeline with the enter first: a TryAcquire of another process that comes between
// the two finds a queue, and where nobody else waits the leave grants to the new
// attempt at once. onLeft is called with what Release would return, before the new
// attempt is followed; op is the operation that it is of.
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
		// The server is a new one, and its clock is not known yet: in two steps. The
		// leave is the first, for the enter may wait for that clock.
		onLeft(l.Release(op))
		v, err := w.enter(ctx)
		return w.entered(ctx, v, err, into)
	}
	if was := l.end(leasehold.ErrReleased); was != held {
		if was == lost {
			m.giveBackLater(l.newGiveBack())
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

// sendBoth sends the enter of w and the leave of l, the server's clock standing at now
// at the latest.
func (l *Lease) sendBoth(ctx context.Context, op string, w *waiter, now int64, onLeft func(error)) (v Verdict, again bool, err error) {
	m, e := l.m, w.prepare(now)
	e.call.Confirm = nil // it would have a pipeline of its own; a grant is confirmed later
	leave := leaveCall(l.req, l.enterMayArriveUntil)
	var entered, left []int64
	var enterErr, leaveErr error
	e.call.Done = func(ints []int64, err error) { entered, enterErr = ints, err }
	leave.Done = func(ints []int64, err error) { left, leaveErr = ints, err }
	answered := make(chan struct{})
	m.Go(func() { // of its own, should a hook end it
		defer close(answered)
		m.client.Send(m.client.Brief(), []*call.Call{e.call, leave})
	})
	<-answered

	// The leave first: a grant in its reply then finds a waiter that has not joined its
	// group, and no subscription is opened for it.
	var r LeaveReply
	if leaveErr == nil {
		r, leaveErr = l.req.ReadLeave(left)
	}
	m.reached(l.res, leaveErr)
	var failed []error
	switch {
	case leaveErr != nil:
		unknown := call.Classify(leaveErr) == call.Unknown
		if unknown {
			m.askSoon(l.res) // grants to our own waiters may have been in the reply
		}
		failed = l.leave(unknown)
	default:
		m.deliver(r.Grants, e.sent)
		if r.More {
			m.giveBackLater(l.newGiveBack())
		}
		if !r.Held && time.Now().Before(l.deadline) {
			failed = l.whyGone()
		}
	}
	onLeft(l.released(op, failed))
	e.take(entered, enterErr)
	return w.onEnterDone(ctx, e)
}

// RenewAndCount renews the lease and asks how its resource is used. An error says that the
// lease may not be held any more: that it is not, or that nobody knows.
func (l *Lease) RenewAndCount() (Use, error) {
	sent := time.Now()
	req := l.req.(TurnRequest)
	var use Use
	c := req.RenewAndCount(l.m.cfg.TTL, sent.Sub(l.since))
	c.Confirm = l.m.confirm
	ints, err := l.m.client.Do(l.m.client.Brief(), c)
	if err == nil {
		ints, use, err = req.ReadRenewAndCount(ints)
	}
	if l.onRenewed(c, sent, ints, err) {
		l.m.Go(l.endByFate)
		return use, errGone
	}
	return use, err
}

// TokenAheadOfClock says that the lease's token was surely ahead of the server's clock
// when it was granted: the clock went back, and the token was counted on from the last
// one.
func (l *Lease) TokenAheadOfClock() bool {
	const slack = 1000 // µs: less than any lease lasts, so that the next grant's clock is past it
	now, unknown := l.m.client.Now(l.res.FirstKey())
	return unknown == nil && l.token > uint64(now-time.Since(l.since).Microseconds())+slack
}

// Ended is the cause with which the Context of the lease ends; nil while it is held.
func (l *Lease) Ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cond == held {
		return nil
	}
	return l.fail("hold")
}

// Since is when the process learned of the grant.
func (l *Lease) Since() time.Time { return l.since }

// Closing is closed when Close begins.
func (m *Manager) Closing() <-chan struct{} { return m.closing }

// BusyError is the error of a request that found a resource as busy as s says.
func (m *Manager) BusyError(s State) *leasehold.BusyError { return m.busyError(s) }

// TermWithin is how much of ttl a lease may be extended by that must end at end.
func TermWithin(ttl, left time.Duration) time.Duration { return max(MinTTL, capTerm(ttl, left)) }

// EventTime is the time, where an Observer wants to know it.
func (m *Manager) EventTime() time.Time { return m.events.now() }

// TurnAcquired tells the Observer the outcome of a request for a turn on a shared lease.
func (m *Manager) TurnAcquired(ctx context.Context, permits int, waited bool, began time.Time, err error) {
	if m.events != nil {
		m.Observe(leasehold.Event{
			Kind: leasehold.EventAcquired, Outcome: acquireOutcome(ctx, err), Context: ctx,
			Duration: time.Since(began), Permits: permits, Waited: waited,
		})
	}
}

// TurnEnded tells the Observer that a turn on a shared lease ended because of why.
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
	m.Observe(leasehold.Event{Kind: leasehold.EventHoldEnded, Outcome: outcome, Duration: time.Since(began), Permits: permits})
}

// TurnHeldTooLong tells that MaxHold ended a turn on the lease, which serves the next one.
func (l *Lease) TurnHeldTooLong() { l.m.events.ended(l, leasehold.ErrMaxHold, false) }

// TurnReleasedLate tells that a turn was released after MaxHold had ended it.
func (l *Lease) TurnReleasedLate() { l.m.events.staleRelease(l) }

// HeldAt reports whether the lease is held at now.
func (l *Lease) HeldAt(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cond == held && now.Before(l.deadline)
}
