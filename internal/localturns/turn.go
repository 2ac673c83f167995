package localturns

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
)

type condition int

const (
	waiting  condition = iota
	running            // its caller has the lease
	lost               // the lease, or MaxHold, ended it
	released           // its caller, or Close, ended it
)

// Turn is one caller's use of a lease, or its wait for that.
type Turn struct {
	line   *line
	op     string
	parent context.Context

	// Set once, with the line's lock, before the caller of Acquire has the turn.
	err    error // why the turn never comes
	visit  *visit
	token  uint64
	since  time.Time
	maxEnd time.Time // when MaxHold is reached; zero: never

	// Guarded by the line's lock.
	wake          chan struct{} // closed when it is decided; nil: nobody sleeps
	ahead, behind *Turn         // in the line
	cond          condition
	why           error     // it is over: a sentinel,
	loss          error     // or why its lease ended
	handed        bool      // its caller has it: the Observer is told how it ends
	maxHeld       bool      // MaxHold ended it
	deadline      time.Time // of the lease when the turn ended
	timer         *time.Timer
	ctx           context.Context
	cancel        context.CancelCauseFunc
}

// decided says that the turn has come, or never will: err says why. Called with the lock.
func (t *Turn) decided() bool { return t.cond != waiting || t.err != nil }

// tell wakes the caller of a turn that has just been decided. Called with the lock.
func (t *Turn) tell() {
	if t.wake != nil {
		close(t.wake)
	}
}

// begin makes v serve t. Called with the lock.
func (t *Turn) begin(v *visit, now time.Time) {
	t.visit, t.cond, t.token, t.since = v, running, v.nextToken(), now
	v.turn, v.served = t, true
	if most := t.line.h.cfg.MaxHold; most > 0 {
		t.maxEnd = now.Add(most)
		t.timer = time.AfterFunc(most, t.maxHold)
	}
}

// end ends a running turn. Called with the lock.
func (t *Turn) end(cond condition, why error) {
	t.cond, t.why = cond, why
	t.deadline = lease.Earlier(t.visit.lease.Deadline(), t.maxEnd)
	t.visit.turn = nil
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.cancel != nil {
		t.cancel(t.cause())
	}
	if t.loss != nil {
		why = t.loss
	}
	if t.handed {
		t.line.h.m.TurnEnded(t.line.name.permits, t.since, why)
	}
}

// cause is the error with which the Context of an ended turn ends. Called with the lock.
func (t *Turn) cause() error {
	if t.loss != nil {
		return t.loss
	}
	return t.line.h.m.Reject("hold", t.line.name.key, t.why)
}

// maxHold ends the turn because MaxHold is reached. The lease goes on to the next turn:
// the bound is each turn's.
func (t *Turn) maxHold() {
	ln := t.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if t.cond != running {
		return
	}
	t.maxHeld = true
	v := t.visit
	t.end(lost, leasehold.ErrMaxHold)
	if t.handed {
		v.lease.TurnHeldTooLong()
	}
	ln.passOn(v)
}

// Release ends the turn; op is how the package calls that.
func (t *Turn) Release(op string) error {
	ln := t.line
	m := ln.h.m
	ln.mu.Lock()
	was := t.cond
	t.cond = released
	switch {
	case was == released:
		ln.mu.Unlock()
		return m.Reject(op, ln.name.key, leasehold.ErrReleased)
	case was == lost && t.maxHeld:
		ln.mu.Unlock()
		t.visit.lease.TurnReleasedLate()
		return m.Reject(op, ln.name.key, leasehold.ErrMaxHold)
	case was == lost:
		ln.mu.Unlock()
		return t.visit.lease.Release(op) // gives back what the server may still have
	}
	v := t.visit
	t.end(released, leasehold.ErrReleased)
	if ln.pass(v) {
		ln.mu.Unlock()
		return nil
	}
	ctx, p := ln.retire(v)
	ln.mu.Unlock()
	return ln.giveBack(ctx, v, p, op)
}

// Extend pushes the expiry of the lease to ttl from now. A lease that was extended is
// given back after the turn, for others may wait longer than LocalFor for it if its
// process dies.
func (t *Turn) Extend(ctx context.Context, ttl time.Duration) error {
	const op = "extend"
	ln := t.line
	m := ln.h.m
	ln.mu.Lock()
	cond := t.cond
	if cond == running && ttl >= lease.MinTTL {
		t.visit.oneTurn = true
		if !t.maxEnd.IsZero() {
			ttl = lease.TermWithin(ttl, time.Until(t.maxEnd))
		}
	}
	ln.mu.Unlock()
	switch {
	case cond == released:
		return m.Reject(op, ln.name.key, leasehold.ErrReleased)
	case cond == lost && t.maxHeld:
		return m.Reject(op, ln.name.key, leasehold.ErrMaxHold)
	}
	return t.visit.lease.Extend(ctx, ttl)
}

// Context is the acquiring ctx, ended when the turn is over. One that is first asked for
// after that has ended already.
func (t *Turn) Context() context.Context {
	t.line.mu.Lock()
	defer t.line.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancelCause(t.parent)
		if t.cond != running {
			t.cancel(t.cause())
		}
	}
	return t.ctx
}

// Deadline is until when the turn's lease is surely held if nothing more succeeds.
func (t *Turn) Deadline() time.Time {
	t.line.mu.Lock()
	defer t.line.mu.Unlock()
	if t.cond != running {
		return t.deadline
	}
	return lease.Earlier(t.visit.lease.Deadline(), t.maxEnd)
}

// Token is the fencing token of the turn, 0 where there is none.
func (t *Turn) Token() uint64 { return t.token }

// Key is the key as its user wrote it.
func (t *Turn) Key() string { return t.line.name.key }

// ID names the turn's lease in listings. All turns of a lease share it.
func (t *Turn) ID() string { return t.visit.lease.ID() }

// visit is a lease that serves turns. All but lease is guarded by the line's lock.
type visit struct {
	line    *line
	lease   *lease.Lease
	turn    *Turn // the one that runs; nil: it is being given back
	counted bool  // among the line's visits
	over    bool  // it serves no turn any more

	until     time.Time // no turn begins later
	lastToken uint64
	served    bool // a turn has begun
	oneTurn   bool // it is not to be passed on: it was extended, or has a token ahead of the clock
	looked    bool // at its token: see mayServeAgain

	// Whether anybody else waits is asked while nobody was known to, once before until.
	alone     bool
	asking    bool
	roundTrip time.Duration // of the last question
}

// mayServeAgain says whether another turn may follow the first one. The token is looked at
// once, and not before there is another turn: most leases of a lone caller serve one.
// Called with the lock.
func (v *visit) mayServeAgain() bool {
	if !v.looked {
		v.looked = true
		v.oneTurn = v.oneTurn || v.lease.TokenAheadOfClock()
	}
	return !v.oneTurn
}

// nextTokenIsDue says whether the visit's next token is not ahead of the server's clock.
// At most one token is issued per microsecond since the grant: if the process dies, the
// fence does not know of the tokens of its turns, and the next grant's token, which is at
// least the clock, must be above them. Where the grant's own token was ahead already, for
// the clock went back, the visit serves one turn.
//
// It looks for some microseconds, and does not sleep: the line is locked. Where the clock
// stands, as it does in a bubble of testing/synctest, the lease is given back instead.
// Called with the lock.
func (v *visit) nextTokenIsDue() bool {
	first := v.lease.Token()
	for range 100 {
		if first == 0 || v.lastToken < first+uint64(time.Since(v.lease.Since()).Microseconds()) {
			return true
		}
	}
	return false
}

// nextToken numbers the visit's next turn. Called with the lock.
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
	v.lease.Request().(lease.TurnRequest).SetLastToken(v.lastToken)
	return v.lastToken
}

// LeaseEnded learns that the lease was lost, or ended by Close. A lost lease is replaced at
// once, even if its holder does not stop.
func (v *visit) LeaseEnded() {
	ln := v.line
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if v.over {
		return
	}
	ln.drop(v)
	if t := v.turn; t != nil {
		cond := lost
		if t.loss = v.lease.Ended(); errors.Is(t.loss, leasehold.ErrClosed) {
			cond = released
		}
		t.end(cond, nil)
	}
	ln.takePlaces()
}
