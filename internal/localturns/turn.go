package localturns

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/report"
)

type condition int

const (
	waiting  condition = iota // the turn has not come; err may say that it never will
	running                   // the turn's caller has the lease
	lost                      // the turn ended because the lease was lost or MaxHold was over
	released                  // the turn ended because of its caller or of Close
)

// A Holding is what one caller holds: a lease of its own, or a turn on a lease.
type Holding interface {
	Context() context.Context
	Release(op string) error
	Extend(ctx context.Context, ttl time.Duration) error
	Deadline() time.Time
	Token() uint64
	Key() string
	ID() string
}

var (
	_ Holding = (*lease.Lease)(nil)
	_ Holding = (*Turn)(nil)
)

// Turn is one caller's use of a lease that serves several callers, or the wait for it.
type Turn struct {
	line   *line
	op     string
	parent nested.Hold // of Context

	// These are set once, under the line's lock, before Acquire returns the turn.
	err    error // why the turn never comes
	visit  *visit
	token  uint64
	joined time.Time // when the caller began to wait in the line
	since  time.Time
	maxEnd time.Time // when MaxHold is over; zero = never

	// Guarded by the line's lock.
	wake          chan struct{} // closed when the turn is decided; nil if no caller sleeps
	ahead, behind *Turn         // neighbours in the line
	cond          condition
	why           error       // the sentinel that says why the turn is over
	loss          error       // the error of the lease, if the turn is over because the lease ended
	handed        bool        // the caller has the turn, so the Observer is told how it ends
	maxHeld       bool        // the turn is over because of MaxHold
	deadline      time.Time   // the lease's deadline when the turn ended
	timer         *time.Timer // calls maxHold; nil: no MaxHold
	ctx           context.Context
	cancel        context.CancelCauseFunc
}

// decided reports whether the turn has come, or never will (then err says why). The line is locked.
func (t *Turn) decided() bool { return t.cond != waiting || t.err != nil }

// tell wakes the caller of a turn that has just been decided. The line is locked.
func (t *Turn) tell() {
	if t.wake != nil {
		close(t.wake)
	}
}

// PermitsOf implements [nested.Hold].
func (t *Turn) PermitsOf(handle any, key string) int {
	t.line.mu.Lock()
	defer t.line.mu.Unlock()
	if t.noticeEnd(); handle != any(t.line.h.m) || key != "" && t.line.key != key || t.cond != running {
		return 0
	}
	return t.line.name.permits
}

// begin makes v serve t. since is when the turn begins. The line is locked.
func (t *Turn) begin(v *visit, since time.Time) {
	t.visit, t.cond, t.token, t.since = v, running, v.nextToken(), since
	v.turn, v.served = t, true
	if most := t.line.h.cfg.MaxHold; most > 0 {
		t.maxEnd = since.Add(most)
		t.timer = time.AfterFunc(most, t.maxHold)
	}
}

// end ends a running turn. The line is locked.
func (t *Turn) end(cond condition, why error) {
	t.cond, t.why = cond, why
	t.deadline = lease.Earlier(t.visit.lease.Deadline(), t.maxEnd)
	t.visit.turn = nil
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.loss != nil {
		why = t.loss
	} else if t.cancel != nil {
		// The lease may be given back, recalled, or lost in a later turn before this lock is free.
		// The Context is not to end with the cause of that.
		t.visit.lease.CancelAtEnd(t.ctx, nil)
	}
	t.endContext()
	if t.line.h.cfg.KeepFor > 0 {
		t.line.h.m.HeldFor(time.Since(t.since))
	}
	if t.handed {
		t.line.h.m.Events().Tell(report.Ended(t.line.name.permits, time.Since(t.since), why))
	}
}

// endContext ends the Context of an ended turn, if there is one, as soon as the line's lock is
// free. The line is locked.
func (t *Turn) endContext() {
	if cancel := t.cancel; cancel != nil {
		ctx, cause := t.ctx, t.cause()
		t.line.mu.later = append(t.line.mu.later, func() { lease.EndContext(ctx, cancel, cause) })
	}
}

// cause returns the cause with which the Context of an ended turn ends. The line is locked.
func (t *Turn) cause() error {
	if t.loss != nil {
		return t.loss
	}
	return t.line.h.m.Reject("hold", t.line.key, t.why)
}

// maxHold ends the turn because MaxHold is over, and then its Context, before anybody else has the lease. The lease goes
// on to the next turn, because each turn has its own MaxHold.
func (t *Turn) maxHold() {
	ln := t.line
	ln.mu.Lock()
	t.noticeEnd()
	ends := t.cond == running
	if ends {
		t.maxHeld = true
		t.end(lost, leasehold.ErrMaxHold)
		if t.handed {
			t.visit.lease.TurnHeldTooLong()
		}
	}
	ln.mu.Unlock()
	if ends {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		ln.passOn(t.visit)
	}
}

// Release ends the turn. op is what the public package calls this operation.
func (t *Turn) Release(op string) error {
	ln := t.line
	m := ln.h.m
	defer m.Events().Observed()
	ln.mu.Lock()
	t.noticeEnd()
	was := t.cond
	t.cond = released
	switch {
	case was == released:
		ln.mu.Unlock()
		return m.Reject(op, ln.key, leasehold.ErrReleased)
	case was == lost && t.maxHeld:
		ln.mu.Unlock()
		t.visit.lease.TurnReleasedLate()
		return m.Reject(op, ln.key, leasehold.ErrMaxHold)
	case was == lost:
		ln.mu.Unlock()
		return t.visit.lease.Release(op) // gives back what the server may still have
	}
	v := t.visit
	t.end(released, leasehold.ErrReleased)
	if ln.pass(v) || ln.rest(v) {
		ln.mu.Unlock()
		return nil
	}
	ctx, p := ln.retire(v)
	ended, ends := t.ctx, ln.mu.later
	ln.mu.later = nil
	ln.mu.Unlock()
	for _, end := range ends {
		go end() // a method of the caller's ctx may hang, or end its goroutine: not this one, which gives back
		<-ended.Done()
	}
	return ln.giveBack(ctx, v, p, op)
}

// Extend moves the expiry of the lease to ttl from now. A lease that was extended is given back after the turn and
// serves no other: if the process died, others would have to wait for the extended expiry.
func (t *Turn) Extend(ctx context.Context, ttl time.Duration) error {
	const op = "extend"
	ln := t.line
	ln.mu.Lock()
	over := t.over(op)
	if t.cond == running && ttl >= lease.MinTTL {
		t.visit.oneTurn = true
		if !t.maxEnd.IsZero() {
			ttl = lease.TermWithin(ttl, time.Until(t.maxEnd))
		}
	}
	ln.mu.Unlock()
	if over != nil {
		return over
	}
	err := t.visit.lease.Extend(ctx, ttl)
	if err == nil || errors.Is(err, leasehold.ErrReleased) { // MaxHold may have ended the turn meanwhile
		ln.mu.Lock()
		defer ln.mu.Unlock()
		err = cmp.Or(t.over(op), err)
	}
	return err
}

// over returns the error of an operation on a turn that ended before its lease. The line is locked.
func (t *Turn) over(op string) error {
	t.noticeEnd()
	switch {
	case t.cond == released:
		return t.line.h.m.Reject(op, t.line.key, leasehold.ErrReleased)
	case t.cond == lost && t.maxHeld:
		return t.line.h.m.Reject(op, t.line.key, leasehold.ErrMaxHold)
	}
	return nil
}

// Context returns a context derived from the ctx of Acquire, which ends when the turn is
// over. If Context is first called after that, the context has ended already.
func (t *Turn) Context() context.Context {
	ln := t.line
	ln.mu.Lock()
	if t.parent.By == nil {
		t.parent.By = t
	}
	ctx := t.ctx
	ln.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(&t.parent) // not under the lock: it calls the code of the caller's ctx
	ln.mu.Lock()
	if t.ctx != nil {
		defer cancel(nil) // another call of Context was faster
	} else if t.ctx, t.cancel = ctx, cancel; t.cond == running {
		// The lease ends it in the step in which the lease ends, and not only LeaseEnded, which runs later: an Extend
		// that says that the lease is over would otherwise find the turn's context alive.
		t.visit.lease.CancelAtEnd(ctx, cancel)
	}
	t.noticeEnd()
	ctx = t.ctx
	ln.mu.Unlock()
	return ctx
}

// Deadline returns the time until which the turn's lease is surely held, even if no further renewal succeeds.
func (t *Turn) Deadline() time.Time {
	t.line.mu.Lock()
	defer t.line.mu.Unlock()
	if t.cond != running {
		return t.deadline
	}
	return lease.Earlier(t.visit.lease.Deadline(), t.maxEnd)
}

// Token returns the fencing token of the turn, or 0 if there is none.
func (t *Turn) Token() uint64 { return t.token }

// Key returns the key as the caller of Acquire wrote it.
func (t *Turn) Key() string { return t.line.key }

// ID returns the ID of the turn's lease in listings. All turns of a lease have the same ID.
func (t *Turn) ID() string { return t.visit.lease.ID() }

// visit is a lease of the process that serves turns, or the attempt to get one. line and lease
// never change. The line's lock guards the other fields.
type visit struct {
	line    *line
	lease   *lease.Lease
	turn    *Turn // the turn that runs; nil before the first turn and after the last
	counted bool  // it is among the line's visits
	at      int   // where
	over    bool  // it serves no further turn

	until     time.Time // no turn begins after this time, unless it may rest
	lastToken uint64    // of the last turn
	served    bool      // a turn has begun
	oneTurn   bool      // it must not be passed on: it was extended, or its token is ahead of the clock
	looked    bool      // mayServeAgain has looked at its token

	grant        lease.Grant // with KeepFor
	rested       bool        // it is counted in the desk's kept leases
	idleSince    time.Time   // zero: it does not rest
	older, newer *visit      // its neighbours on the shelf; the shelf's lock guards them

	// askOthers asks once before until, as long as nobody else is known to wait.
	alone     bool          // nobody else was waiting when Redis last told
	asking    bool          // a question is under way
	roundTrip time.Duration // of the last question
}

// mayServeAgain reports whether another turn may follow the first one. It looks at the token once, and only when there
// is a second turn, because most leases of a lone caller serve one turn. The line is locked.
func (v *visit) mayServeAgain() bool {
	if !v.looked {
		v.looked = true
		v.oneTurn = v.oneTurn || v.lease.TokenAheadOfClock()
	}
	return !v.oneTurn
}

// nextTokenIsDue reports whether the visit's next token would not be ahead of the server's clock. A visit issues at
// most one token per microsecond since its grant. If the process dies, the fence in Redis knows none of the tokens of
// its turns. The next grant's token is at least the server's clock, and so it is still above them all. If the grant's
// own token was ahead of the clock, because the clock went back, the visit serves one turn only.
//
// nextTokenIsDue looks at the clock for some microseconds and does not sleep, because the line is locked. In a bubble
// of testing/synctest the clock stands still; then the lease is given back instead.
func (v *visit) nextTokenIsDue() bool {
	first := v.lease.Token()
	for range 100 {
		if first == 0 || v.lastToken < first+uint64(time.Since(v.lease.Since()).Microseconds()) {
			return true
		}
	}
	return false
}

// nextToken returns the token of the visit's next turn. The line is locked.
func (v *visit) nextToken() uint64 {
	first := v.lease.Token()
	switch {
	case first == 0:
		return 0
	case v.lastToken == 0:
		v.lastToken = first
		return first
	}
	v.lastToken++
	v.lease.SetLastToken(v.lastToken)
	return v.lastToken
}

// LeaseEnded is called when the lease was lost or Close ended it. The line takes a new place
// for a lost lease at once, even if the holder does not stop.
func (v *visit) LeaseEnded() {
	v.line.mu.Lock()
	defer v.line.mu.Unlock()
	v.leaseEnded()
}

// noticeEnd ends a running turn whose lease has ended: LeaseEnded may not have run yet. So no call on a turn finds it
// running after its lease. If the turn is over, its Context has ended once the caller has freed the lock, even if
// another goroutine is about to end it. The line is locked.
func (t *Turn) noticeEnd() {
	switch {
	case t.cond != running:
		t.endContext()
	case t.visit.lease.Why() != nil:
		t.visit.leaseEnded()
	}
}

// leaseEnded is LeaseEnded with the line locked.
func (v *visit) leaseEnded() {
	ln, over := v.line, v.over
	if !v.idleSince.IsZero() {
		ln.eachIdle(func(other *visit) bool { return other == v })
	}
	ln.drop(v)
	if why := v.lease.Why(); ln.h.cfg.KeepFor > 0 && errors.Is(why, leasehold.ErrLost) && !errors.Is(why, leasehold.ErrRevoked) {
		// What Redis has lost of one, it may have lost of the others. That is so, too, if v is over
		// because a request has found it ended.
		ln.kept.recalledAt = time.Now()
		ln.eachIdle(all)
	}
	if over {
		return
	}
	if t := v.turn; t != nil {
		cond := lost
		if t.loss = v.lease.Why(); errors.Is(t.loss, leasehold.ErrClosed) {
			cond = released
		}
		t.end(cond, nil)
	}
	ln.takePlaces()
}
