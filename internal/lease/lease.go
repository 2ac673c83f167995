package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

type condition int

const (
	held condition = iota
	lost
	released
)

// A Lease is one thing held: permits of a key, or a lock. Acquire fills it in in place, so
// that the types of the packages embed it without another allocation.
type Lease struct {
	// Set by start and never changed afterwards.
	self                *Lease // differs from the address of a copy
	m                   *Manager
	key                 string
	res                 Resource
	req                 Request
	token               uint64
	parent              Hold // of Context
	since               time.Time
	permits             int
	seq                 uint64      // of its attempt
	watched             bool        // whether hints are watched for; guarded by the manager's lock
	maxEnd              time.Time   // when MaxHold is reached, by the local clock; zero: never
	enterMayArriveUntil int64       // see waiter
	turns               Turns       // see Attempt
	byEnter             bool        // see ByEnter
	quiet               atomic.Bool // see Attempt
	completes           bool        // see Complete; set before its leave is sent
	seat                *call.Seat  // of its leave; nil: none. Only its Release uses it

	entry schedule.Entry // guarded by the schedule

	mu           sync.Mutex // guards the fields below; the manager's lock may be taken while it is held
	cond         condition
	deadline     time.Time // the time until which the lease is surely held
	standsUntil  time.Time // until when the server may keep it, because of renewals and Extends; zero: there was none
	leaving      *giveBack // gives it back in the background; nil: nothing does
	renewAt      time.Time
	renewing     *call.Call // the schedule's last renewal; nil: there was none
	fateAt       time.Time  // when to ask for its fate; zero: do not ask
	fateAsked    time.Time  // when that was last asked
	fateFailures int        // consecutive
	failure      error      // of the last renewal; nil if that was answered
	why          error      // why it is over: a sentinel error
	cause        error      // what led to that, if known
	ctx          context.Context
	cancel       context.CancelCauseFunc
}

// planRenewal sets the next renewal to a third of the time that is left, less up to a tenth of
// that, at random. Called with the lock.
func (l *Lease) planRenewal(now time.Time) {
	left := max(0, min(l.deadline.Sub(now), l.m.cfg.TTL))
	l.renewAt = now.Add(left/3 - rand.N(left/30+1))
}

// nextDue returns when Due next has something to do, and how much earlier it may be called.
// Called with the lock.
func (l *Lease) nextDue() (time.Time, time.Duration) {
	at := l.renewAt
	slack := l.m.cfg.TTL / 24
	if l.deadline.Before(at) {
		at, slack = l.deadline, 0
	}
	if !l.maxEnd.IsZero() && l.maxEnd.Before(at) {
		at, slack = l.maxEnd, 0
	}
	if !l.fateAt.IsZero() && l.fateAt.Before(at) {
		at, slack = l.fateAt, 0
	}
	return at, slack
}

// Due renews the lease when a renewal is due, and ends it when its time is over.
func (l *Lease) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cond != held:
		return calls, time.Time{}, 0
	case !l.maxEnd.IsZero() && !now.Before(l.maxEnd):
		l.lose(leasehold.ErrMaxHold, nil)
		l.m.giveBackLater(l.newGiveBack())
		return calls, time.Time{}, 0
	case !now.Before(l.deadline):
		// Nothing is given back here: the holder may need the margin to stop. The permit is
		// given back when the holder calls Release; otherwise it expires on the server.
		l.lose(leasehold.ErrLost, l.noRenewal())
		return calls, time.Time{}, 0
	}
	if !l.fateAt.IsZero() && !now.Before(l.fateAt) {
		calls = append(calls, l.fateCall(now))
		if at, slack := l.nextDue(); now.Before(at.Add(-slack)) {
			return calls, at, slack
		}
	}
	// If no answer comes, try again after a quarter of the time that is left. A renewal in the
	// queue of its server is not repeated: the queue sends it before all calls but renewals
	// that are more urgent.
	again := min(max(l.deadline.Sub(now)/4, 5*time.Millisecond), time.Second)
	if l.renewing != nil {
		if until, pending := l.renewing.Pending(now, again, l.deadline.Sub(now)/2); pending {
			l.renewAt = until
			at, _ := l.nextDue()
			return calls, at, 0
		}
	}
	c := l.renewal(now, l.term(now), l.deadline)
	c.Done = func(ints []int64, err error) {
		if l.onRenewed(c, ints, err) {
			l.m.Go(l.endByFate)
		}
	}
	l.renewing = c
	l.renewAt = now.Add(again)
	at, slack := l.nextDue()
	return append(calls, c), at, min(slack, again/4)
}

// renewal prepares a call that renews the lease, which has this deadline, for term.
func (l *Lease) renewal(now time.Time, term time.Duration, deadline time.Time) (c *call.Call) {
	if r, ok := l.req.(HeldRenewer); ok {
		c = r.RenewHeld(term, l.enterMayArriveUntil, now.Sub(l.since))
	} else {
		c = l.req.Renew(term, l.enterMayArriveUntil)
	}
	c.Rank, c.By, c.Confirm = call.KeepsLease, deadline, l.m.confirm
	return c
}

// term returns how long to renew for: the TTL, or the time that MaxHold leaves plus the margin
// between the deadline and the end of the term.
func (l *Lease) term(now time.Time) time.Duration {
	if l.maxEnd.IsZero() {
		return l.m.cfg.TTL
	}
	return capTerm(l.m.cfg.TTL, l.maxEnd.Sub(now))
}

// onRenewed processes the outcome of the renewal c. A renewal that too few replicas confirmed
// moves no deadline: a replica that takes over from the primary may never have received it. If
// gone is true, the lease has ended on the server; the caller asks why, and ends it.
func (l *Lease) onRenewed(c *call.Call, ints []int64, err error) (gone bool) {
	var r RenewReply
	if err == nil {
		r, err = l.req.ReadRenew(ints)
	}
	l.m.reached(l.res, err)
	stands := r.Term // counted from now, because the server's term began before this answer
	if err != nil && call.Classify(err) == call.Unknown {
		stands = l.m.cfg.TTL
	}
	if err == nil && r.Term > 0 {
		err = c.Unconfirmed()
	}
	l.mu.Lock()
	l.mayStand(stands)
	if l.cond != held {
		l.mu.Unlock()
		return false
	}
	l.failure = err
	l.m.events.renewed(l.deadline, r, err)
	switch {
	case err != nil && wrongType(err):
		l.lose(leasehold.ErrLost, err)
	case err != nil:
		// The next try is scheduled, and the deadline stays.
	case r.Term == 0 && r.Ended != nil:
		l.lose(r.Ended, nil)
	case r.Term == 0:
		l.mu.Unlock()
		return true
	default:
		l.extended(c.Sent, r.Term)
	}
	if l.cond != held {
		l.mu.Unlock()
		l.m.loop.Remove(&l.entry)
		return false
	}
	at, slack := l.nextDue()
	l.mu.Unlock()
	if err == nil {
		l.m.loop.Put(&l.entry, l, at, slack)
	}
	return false
}

var (
	errNoAnswer = errors.New("no answer in time")          // the outcome is not known
	errGone     = errors.New("it has ended on the server") // the server said that the lease is lost
)

func wrongType(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }

// extended moves the deadline after a renewal, sent at the time sent, that left term. A
// renewal never shortens a lease on the server, so an older answer with an earlier end is
// ignored. Called with the lock.
func (l *Lease) extended(sent time.Time, term time.Duration) {
	if d := deadline(sent, term); d.After(l.deadline) {
		l.deadline = d
	}
	l.planRenewal(time.Now())
}

// noRenewal returns why the lease was not renewed in time: the error of the last renewal that
// has its outcome. If that one succeeded, no later renewal was answered, and the error is
// errNoAnswer. Called with the lock.
func (l *Lease) noRenewal() error {
	if l.failure == nil {
		return errNoAnswer
	}
	return l.failure
}

// lose marks the lease as lost and ends its Context. Called with the lock.
func (l *Lease) lose(why, cause error) {
	l.cond = lost
	l.why, l.cause = why, cause
	if l.cancel != nil {
		l.cancel(l.fail("hold"))
	}
	l.m.events.ended(l, why, true)
	if l.turns != nil {
		l.m.Go(l.turns.LeaseEnded)
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.dropLease(l)
}

// RenewNow brings the next renewal forward if the lease is held.
func (l *Lease) RenewNow() {
	l.mu.Lock()
	if l.cond != held {
		l.mu.Unlock()
		return
	}
	l.renewAt = time.Now()
	at, slack := l.nextDue()
	l.mu.Unlock()
	l.m.loop.Put(&l.entry, l, at, slack)
}

// Context returns a child of the acquiring ctx that ends when the lease is lost or given back.
// It is made on the first call, because many holders never ask for it.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(&l.parent)
		if l.cond != held {
			l.cancel(l.fail("hold"))
		}
	}
	return l.ctx
}

// Deadline returns the time until which the lease is surely held if no later renewal succeeds.
// It is never later than the end of MaxHold, however long the lease lasts on the server.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Earlier(l.deadline, l.maxEnd)
}

// Earlier returns the earlier of t and end. A zero end means that there is no end.
func Earlier(t, end time.Time) time.Time {
	if !end.IsZero() && end.Before(t) {
		return end
	}
	return t
}

// Key returns the key as the caller wrote it.
func (l *Lease) Key() string { return l.key }

// Token returns the fencing token, or 0 if there is none.
func (l *Lease) Token() uint64 { return l.token }

// ID returns the name of the lease in listings. It is not the owner id.
func (l *Lease) ID() string { return l.req.ID() }

// Request returns the request that was granted, for the package of its Protocol.
func (l *Lease) Request() Request { return l.req }

// ByEnter reports whether the grant came in the reply to the attempt's own enter. Otherwise
// another call granted it, which may have run before or after the attempt's own calls.
func (l *Lease) ByEnter() bool { return l.byEnter }

// EnterMayArriveUntil returns the server time (µs) until which a copy of the lease's enter may
// still arrive; 0: none can. Calls other than Leave that end the lease need it.
func (l *Lease) EnterMayArriveUntil() int64 { return l.enterMayArriveUntil }

// Held returns nil while the lease is held. Afterwards it returns an error of the operation op
// that says why the lease is over.
func (l *Lease) Held(op string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.cond {
	case lost:
		return l.fail(op)
	case released:
		return l.m.fail(op, l.res.Label(), leasehold.ErrReleased)
	}
	return nil
}

// fail returns the error of an operation on a lease that is over. Called with the lock, or
// once l.why can no longer change.
func (l *Lease) fail(op string) error { return l.m.fail(op, l.res.Label(), l.why, l.cause) }
