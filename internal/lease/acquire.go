package lease

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// Attempt describes what an Acquire asks for.
type Attempt struct {
	Op      string // for errors: "acquire", "lock", …
	Key     string
	Permits int
	Limit   int
	Want    any // passed to the Protocol, in Terms

	Parent context.Context // of the lease's Context; nil: the ctx of Acquire
	Seat   *call.Seat      // sends the first enter together with others; nil: it is sent by itself

	Turns Turns // set if the lease serves several turns; nil: it serves its caller alone
	Wait  bool  // for a turn
	Own   bool  // with Turns: the attempt is its caller's, although others may use the lease later
	Keeps bool  // the lease may be kept when nobody uses it

	AwaitsKept bool // without Wait: wait for a moment if permits that were kept may be on their way

	NoMaxWait bool          // MaxWait does not end this wait
	Bounded   bool          // MaxWait ends it although it does not Wait
	Waited    time.Duration // how much of MaxWait is over
	Quiet     bool          // the Observer is told nothing before Report

	BeforeEnter func() // called before each enter is sent; may be nil
	OnWait      func() // called when the attempt is queued, and before an unanswered enter is retried; may be nil
}

// Acquire takes the permits that of asks for and stores the lease in into. It returns as soon
// as ctx ends, even if a call is under way. Anything that this call may have been granted is
// then given back in the background. If the Protocol answers without a lease, Acquire returns
// that answer and does not use into.
func (m *Manager) Acquire(ctx context.Context, of Attempt, into *Lease) (answer any, err error) {
	if of.Seat != nil {
		defer of.Seat.Leave() // so that the others do not wait for a seat that sends nothing
	}
	res, err := m.begin(ctx, of.Op, of.Key)
	if err != nil {
		return nil, err
	}
	defer m.done()
	into.check()
	c := caller{m: m, ctx: ctx, of: of, at: m.newAttempt(res, of)}
	if m.cfg.MaxWait > 0 && (of.Wait && !of.NoMaxWait || of.Bounded) {
		limit := time.NewTimer(m.cfg.MaxWait - of.Waited)
		defer limit.Stop()
		c.maxWait = limit.C
	}
	began := m.events.Now()
	if !of.Wait {
		err = m.client.Reachable(ctx, res.FirstKey())
	}
	if err != nil {
		err = c.fail(ctx.Err(), leasehold.ErrUnavailable, err)
	} else {
		_, answer, err = c.run(into)
	}
	c.at.tellAcquired(ctx, began, answer, err)
	m.events.Observed()
	if answer == nil {
		err = c.unlessClosed(into, err)
	}
	return answer, err
}

// unlessClosed returns the error of an attempt that ended with err. If Close or Shutdown has
// begun, it gives the lease back and returns ErrClosed: Stop gives back only what it finds.
func (c *caller) unlessClosed(into *Lease, err error) error {
	if err != nil || !c.m.Closed() {
		return err
	}
	into.a.step(nil, func(now life.Moment) life.Effect { return into.a.life.GiveBack(life.ByClose, now) })
	return c.fail(leasehold.ErrClosed)
}

// A caller is the goroutine of one Acquire, which goes from one look at its attempt to the
// next. Only it sends enters, and only it knows of ctx, MaxWait and Close.
type caller struct {
	m        *Manager
	ctx      context.Context
	of       Attempt // its Seat is nil once an enter has used it
	at       *attempt
	maxWait  <-chan time.Time // fires when MaxWait is over; nil: no bound
	enter    *enter           // the last one, if another goroutine has made its round trip
	asked    time.Time        // when the last call that it waits for was begun
	restarts int
	again    bool // it has just given its lease back, so MaxWaiters does not apply
	stops    bool // run returns once the attempt is queued
	was      life.State
}

// An event ends a pause of a caller.
type event int

const (
	answered event = iota // what it waits for has come, or it was woken
	ctxEnded
	maxWaitOver
	handleClosed
)

// sleep waits for the first event. ready delivers what the caller waits for besides a wake.
func sleep[T any](c *caller, wake <-chan struct{}, ready <-chan T) event {
	select {
	case <-wake:
		return answered
	case <-ready:
		return answered
	case <-c.ctx.Done():
		return ctxEnded
	case <-c.maxWait:
		return maxWaitOver
	case <-c.m.closing:
		return handleClosed
	}
}

// run looks until the attempt is granted, answered or ended, or, if the caller stops there,
// queued. If a method of ctx panics, or a hook of the client ends the goroutine, nobody would
// take what the attempt gets.
func (c *caller) run(into *Lease) (isQueued bool, answer any, err error) {
	returned := false
	defer func() {
		if !returned {
			c.leave()
		}
	}()
	isQueued, answer, err = c.look(into)
	returned = true
	return isQueued, answer, err
}

// look does what the looks say.
func (c *caller) look(into *Lease) (isQueued bool, answer any, err error) {
	m := c.m
	for {
		at := c.at
		m.mu.Lock()
		now := m.now()
		do, fx := at.life.Look(now)
		if do == life.LookTake && m.closed {
			do = life.LookWait // and hear that the handle is closed
		} else if do == life.LookTake {
			into.begin(c, now)
		}
		if at.wake == nil && (do == life.LookWait || do == life.LookPause) {
			at.wake = make(chan struct{}, 1)
		}
		end := at.after(fx, nil)
		if !at.life.Flying {
			c.enter = nil // so that a waiter takes no memory for it
		}
		becameQueued := at.life.State == life.Waiting && c.was != life.Waiting
		c.was = at.life.State
		next, wake, kept := at.life.Next, at.wake, at.kept
		m.mu.Unlock()
		end.tell()
		if becameQueued {
			if !c.of.Wait {
				c.maxWait = time.After(kept.await())
			} else if err := c.mayWait(); err != nil {
				c.leave()
				return false, nil, err
			}
			c.onWait()
			if c.stops {
				return true, nil, nil
			}
		}
		ev := answered
		switch do {
		case life.LookTake:
			return false, nil, nil
		case life.LookSend:
			ev = c.send()
		case life.LookDetach:
			c.detach()
		case life.LookWait:
			ev = sleep[struct{}](c, wake, nil)
		case life.LookPause:
			c.onWait()
			pause := time.NewTimer(next - now)
			ev = sleep(c, wake, pause.C)
			pause.Stop()
		case life.LookTold:
			if answer, err := c.hear(); answer != nil || err != nil {
				return false, answer, err
			}
		}
		if ev != answered {
			return false, nil, c.end(ev)
		}
	}
}

// mayWait returns an error if the caller, which is queued, would wait for itself: it needs
// permits that are given back only after it has returned.
func (c *caller) mayWait() error {
	m, at := c.m, c.at
	if at.turns != nil && !at.own {
		return nil
	}
	ofAll := nested.Permits(c.ctx, m, "")
	if ofAll == 0 {
		return nil
	}
	ofKey := nested.Permits(c.ctx, m, at.key)
	m.mu.Lock()
	state := at.seen()
	m.mu.Unlock()
	const text = "ctx descends from a lease of this %s, for which the call would wait: it asks for %d, that lease holds %d, and the %s is %d"
	switch {
	case state == nil:
	case ofKey > 0 && ofKey+at.permits > state.Limit:
		return c.fail(keys.Invalid(text, "key", at.permits, ofKey, "limit", state.Limit))
	case state.Total > 0 && ofAll+at.permits > state.Total:
		return c.fail(keys.Invalid(text, "family", at.permits, ofAll, "total", state.Total))
	}
	return nil
}

func (c *caller) onWait() {
	if c.of.OnWait != nil {
		c.of.OnWait()
	}
}

// leave ends the attempt for its caller, and gives back in the background whatever it was or may still be granted.
func (c *caller) leave() (withdrawn bool) {
	c.at.step(nil, c.at.life.Leave)
	return c.detach()
}

// end ends the attempt because of ev, and returns the error. It says that the key is busy only
// if Redis has said so, and answers.
func (c *caller) end(ev event) error {
	m, at := c.m, c.at
	m.mu.Lock()
	state, was, fails, failure := at.seen(), at.life.State, at.life.Fails, at.failure
	silent := at.group != nil && at.group.asking.Silent(m.now())
	answer, told := c.verdict()
	m.mu.Unlock()
	withdrawn := c.leave()
	var cause error // why Redis has not answered
	switch {
	case answer != nil || told != nil || was == life.Waiting || was == life.Holding && state != nil:
	case withdrawn && fails == 0:
	case was == life.Entering && fails > 0:
		cause = failure
		if fails == 1 && errors.Is(failure, call.ErrNotSent) && c.ctx.Err() != nil && errors.Is(failure, c.ctx.Err()) {
			cause, fails = nil, 0 // it was dropped because ctx had ended
		}
	default:
		cause = errNoAnswer
	}
	if cause != nil && (fails > 0 || time.Since(c.asked) > life.Silence) {
		silent = true
	}
	if state != nil && !c.of.Wait { // a try that awaits kept permits does not count as a waiter
		state.Waiting = max(0, state.Waiting-1)
	}
	var errs []error
	if ev == ctxEnded {
		errs = append(errs, c.ctx.Err())
	}
	switch {
	case ev == handleClosed:
		errs = append(errs, leasehold.ErrClosed)
	case told != nil:
		errs = append(errs, told...)
	case state != nil && !silent:
		errs = append(errs, m.BusyError(*state))
	case state != nil || cause != nil || ev == maxWaitOver:
		errs = append(errs, leasehold.ErrUnavailable, cmp.Or(cause, errNoAnswer))
	}
	return c.fail(errs...)
}

// hear returns what the caller is told by an attempt that has ended. If neither an answer nor an
// error, another attempt follows, with the same ticket.
func (c *caller) hear() (answer any, err error) {
	c.m.mu.Lock()
	answer, errs := c.verdict()
	c.m.mu.Unlock()
	switch {
	case errs != nil:
		return nil, c.fail(errs...)
	case answer != nil:
		return answer, nil
	}
	if c.restarts++; c.restarts >= life.MaxRestarts {
		return nil, c.fail(leasehold.ErrUnavailable, errors.New("the keys do not fit together, or replies come too late"))
	}
	c.m.mu.Lock() // the attempt of a Place is looked at
	defer c.m.mu.Unlock()
	ticket := c.at.ticket
	c.at = c.m.newAttempt(c.at.res, c.of)
	c.at.ticket, c.at.leftGroup, c.was = ticket, c.m.now(), life.Entering
	return nil, nil
}

// verdict returns what the attempt says if it has ended: an answer, or errors; neither: to begin
// anew, or nothing yet. Called with the lock.
func (c *caller) verdict() (answer any, errs []error) {
	told, r := c.at.life.Told, c.at.heard
	if r == nil {
		r = &protocol.Result{Err: errNoAnswer}
	}
	switch {
	case told == life.TellRevoked:
		errs = []error{&leasehold.RevokedError{Reason: r.Reason}}
	case told == life.TellLate:
		errs = []error{leasehold.ErrUnavailable, errLate}
	case told == life.TellNoAnswer:
		errs = []error{leasehold.ErrUnavailable, cmp.Or(r.Err, errNoAnswer)}
	case told != life.TellAnswer:
	case r.Code == life.Answered:
		answer = r.Answer
	case r.Code == life.TooMany:
		errs = []error{keys.Invalid("asks for %d permits; the limit is %d", c.at.permits, r.Limit)}
	case r.Code == life.QueueFull:
		errs = []error{leasehold.ErrQueueFull, c.m.BusyError(*r.State)}
	case r.Code == life.Busy:
		errs = []error{c.m.BusyError(*r.State)}
	default: // a foreign value
		errs = []error{leasehold.ErrUnavailable, r.Err}
	}
	return answer, errs
}

func (c *caller) fail(errs ...error) error { return c.m.fail(c.of.Op, c.at.res.Label(), errs...) }
