package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
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

// Lease is one thing held: permits of a key, or a lock. It is made by Acquire
// in place, so that the packages' types hold it without another allocation.
type Lease struct {
	// Set by start and never changed.
	self                *Lease // tells a copy from the lease itself
	m                   *Manager
	key                 string
	res                 Resource
	req                 Request
	token               uint64
	parent              context.Context // of Context
	since               time.Time
	permits             int
	seq                 uint64    // of its attempt
	watched             bool      // it waits for hints; guarded by the manager's lock
	maxEnd              time.Time // when MaxHold is reached, by the local clock; zero: never
	enterMayArriveUntil int64     // see waiter
	turns               Turns     // see Attempt

	entry schedule.Entry // guarded by the schedule

	mu           sync.Mutex // guards what follows; the manager's lock may be taken while it is held
	cond         condition
	deadline     time.Time // until when it is surely held
	renewAt      time.Time
	fateAt       time.Time // when to ask for its fate; zero: not
	fateAsked    time.Time // when that was asked last
	fateFailures int       // in a row
	failure      error     // of the last renewal, nil where it was answered
	why          error     // it is over: a sentinel,
	cause        error     // and what led to that, if known
	back         *giveBack // once MaxHold ended it: takes its place in the schedule
	ctx          context.Context
	cancel       context.CancelCauseFunc
}

// planRenewal sets when to renew: after a third of what is left, spread by a tenth.
// Called with the lock.
func (l *Lease) planRenewal(now time.Time) {
	left := max(0, min(l.deadline.Sub(now), l.m.cfg.TTL))
	l.renewAt = now.Add(left/3 - rand.N(left/30+1))
}

// nextDue is when Due has something to do, and how much earlier it may be called.
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

// Due ends the lease when its time is over, and renews it before.
func (l *Lease) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.back != nil:
		return l.back.Due(now, calls)
	case l.cond != held:
		return calls, time.Time{}, 0
	case !l.maxEnd.IsZero() && !now.Before(l.maxEnd):
		l.lose(leasehold.ErrMaxHold, nil)
		l.back = l.newGiveBack()
		return l.back.Due(now, calls)
	case !now.Before(l.deadline):
		// Nothing is given back here: the holder may need the margin to stop. The
		// permit is given back when the holder calls Release; else its term on the
		// server ends by itself.
		l.lose(leasehold.ErrLost, l.noRenewal())
		return calls, time.Time{}, 0
	}
	if !l.fateAt.IsZero() && !now.Before(l.fateAt) {
		calls = append(calls, l.fateCall(now))
		if at, slack := l.nextDue(); now.Before(at.Add(-slack)) {
			return calls, at, slack
		}
	}
	c := l.renewal(now, l.term(now))
	c.Done = func(ints []int64, err error) {
		if l.onRenewed(c, now, ints, err) {
			l.m.Go(l.endByFate)
		}
	}
	// If no answer comes, again after a quarter of what is left.
	again := min(max(l.deadline.Sub(now)/4, 5*time.Millisecond), time.Second)
	l.renewAt = now.Add(again)
	at, slack := l.nextDue()
	return append(calls, c), at, min(slack, again/4)
}

// renewal prepares the call that renews for term.
func (l *Lease) renewal(now time.Time, term time.Duration) (c *call.Call) {
	if r, ok := l.req.(HeldRenewer); ok {
		c = r.RenewHeld(term, l.enterMayArriveUntil, now.Sub(l.since))
	} else {
		c = l.req.Renew(term, l.enterMayArriveUntil)
	}
	c.Confirm = l.m.confirm
	return c
}

// term is how long to renew for: the TTL, or what MaxHold leaves, with the
// margin that the deadline lies before it.
func (l *Lease) term(now time.Time) time.Duration {
	if l.maxEnd.IsZero() {
		return l.m.cfg.TTL
	}
	return capTerm(l.m.cfg.TTL, l.maxEnd.Sub(now))
}

// onRenewed takes the outcome of a renewal, c, that was sent at sent. One that too few
// replicas confirmed moves no deadline: a server that one of them follows in the
// primary's place may never have heard of it. gone: the lease has ended on the server;
// the caller asks why, and ends it.
func (l *Lease) onRenewed(c *call.Call, sent time.Time, ints []int64, err error) (gone bool) {
	var r RenewReply
	if err == nil {
		r, err = l.req.ReadRenew(ints)
	}
	l.m.reached(l.res, err)
	if err == nil && r.Term > 0 {
		err = c.Unconfirmed()
	}
	l.mu.Lock()
	if l.cond != held {
		l.mu.Unlock()
		return false
	}
	if !errors.Is(err, call.ErrBacklog) {
		l.failure = err
	}
	l.m.events.renewed(l.deadline, r, err)
	switch {
	case err != nil && wrongType(err):
		l.lose(leasehold.ErrLost, err)
	case err != nil:
		// The next try is scheduled; the deadline stands.
	case r.Term == 0 && r.Ended != nil:
		l.lose(r.Ended, nil)
	case r.Term == 0:
		l.mu.Unlock()
		return true
	default:
		l.extended(sent, r.Term)
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
	errNoAnswer = errors.New("no answer in time")          // an outcome that is not known
	errGone     = errors.New("it has ended on the server") // a loss that the server told of
)

func wrongType(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }

// extended moves the deadline to what a renewal sent at sent left: a renewal
// never shortens, so that an older answer that says less is no news. Called with the
// lock.
func (l *Lease) extended(sent time.Time, term time.Duration) {
	if d := sent.Add(term - margin(term)); d.After(l.deadline) {
		l.deadline = d
	}
	l.planRenewal(time.Now())
}

// noRenewal is why the lease was not renewed in time: what the last renewal met that
// came as far as the server's connection. One that was held back behind others, or is
// under way yet, met that there is no answer. Called with the lock.
func (l *Lease) noRenewal() error {
	if l.failure == nil {
		return errNoAnswer
	}
	return l.failure
}

// lose ends the lease's Context: from here on it is not held. Called with the lock.
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

// RenewNow brings the next renewal forward, where the lease is held.
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

// Context is the acquiring ctx, ended when the lease is lost or given back. It
// is made when first asked for: many holders never do.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(l.parent)
		if l.cond != held {
			l.cancel(l.fail("hold"))
		}
	}
	return l.ctx
}

// Deadline is until when the lease is surely held if nothing more succeeds: MaxHold frees
// it, however long it lasts on the server.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Earlier(l.deadline, l.maxEnd)
}

// Earlier is t, or end where that comes before; zero: there is none.
func Earlier(t, end time.Time) time.Time {
	if !end.IsZero() && end.Before(t) {
		return end
	}
	return t
}

// Key is the key as its user wrote it.
func (l *Lease) Key() string { return l.key }

// Token is the fencing token, 0 where there is none.
func (l *Lease) Token() uint64 { return l.token }

// ID names the lease in listings. It is not the owner id.
func (l *Lease) ID() string { return l.req.ID() }

// Request is the request that was granted, for the package of its Protocol.
func (l *Lease) Request() Request { return l.req }

// EnterMayArriveUntil is the server time (µs) until which a copy of the lease's enter
// may still arrive, for calls that end the lease beside Leave; 0: none can.
func (l *Lease) EnterMayArriveUntil() int64 { return l.enterMayArriveUntil }

// Held says why the lease is not held any more, as the error of an operation op on
// it; nil while it is held.
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

// fail is the error of an operation on a lease that is over. Called with the
// lock, or once l.why can no longer change.
func (l *Lease) fail(op string) error { return l.m.fail(op, l.res.Label(), l.why, l.cause) }
