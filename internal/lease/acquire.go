package lease

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
)

const (
	// voidAfter is how long an enter may take to reach the server. A later copy of it does
	// nothing.
	voidAfter = 5 * time.Second
	// patience is how long a waiter keeps trying while the server does not answer its enter. A
	// request that does not wait is tried at most maxTries times.
	patience = 3 * time.Second
	maxTries = 3
	// silence is how long a call without an answer does not yet mean that Redis has fallen
	// silent.
	silence = time.Second
	// maxRestarts bounds how often one Acquire starts a new attempt because a reply came too
	// late to be of use.
	maxRestarts = 4
)

// Attempt describes what an Acquire asks for.
type Attempt struct {
	Op      string // for errors: "acquire", "lock", …
	Key     string
	Permits int
	Limit   int
	Wait    bool
	Want    any // passed to the Protocol, in Terms

	Parent context.Context // of the lease's Context; nil: the ctx of Acquire
	Seat   *call.Seat      // sends the first enter together with others; nil: it is sent by itself

	Turns Turns // set if the lease serves several turns; nil: it serves its caller alone

	NoMaxWait bool // MaxWait does not end this wait
	Quiet     bool // the Observer is told nothing before Report

	BeforeEnter func() // called before each enter is sent; may be nil
	OnWait      func() // called when the attempt is queued, and before an unanswered enter is retried; may be nil
}

// Acquire takes the permits that a asks for and stores the lease in into. It returns as soon
// as ctx ends, even if a call is under way. Anything that this call may have been granted is
// then given back in the background. If the Protocol answers without a lease, Acquire returns
// that answer and does not use into.
func (m *Manager) Acquire(ctx context.Context, a Attempt, into *Lease) (answer any, err error) {
	if a.Seat != nil {
		defer a.Seat.Leave() // so that the others do not wait for a seat that sends nothing
	}
	res, err := m.begin(ctx, a.Op, a.Key)
	if err != nil {
		return nil, err
	}
	defer m.done()
	w := &waiter{m: m, res: res, Attempt: a}
	if m.cfg.MaxWait > 0 && a.Wait && !a.NoMaxWait && a.Turns == nil {
		limit := time.NewTimer(m.cfg.MaxWait)
		defer limit.Stop()
		w.maxWait = limit.C
	}
	began := m.events.now()
	w.newRequest()
	answer, err = w.run(ctx, into)
	m.events.acquired(ctx, w, began, answer, err)
	m.events.observed()
	if answer != nil {
		return answer, err
	}
	return nil, w.unlessClosed(err, into)
}

// unlessClosed returns the error of an attempt that ended with err. If Close or Shutdown has
// begun, it gives the lease back and returns ErrClosed. Stop may have ended the lease already:
// start lists a lease only as long as the handle is open, and Stop goes through the list
// afterwards.
func (w *waiter) unlessClosed(err error, into *Lease) error {
	if err != nil {
		return err
	}
	select {
	case <-w.m.closing:
		into.abandon(leasehold.ErrClosed)
		return w.fail(leasehold.ErrClosed)
	default:
		return nil
	}
}

// begin starts an operation on key. The caller must call done at its end. Close waits for
// operations that have begun; begin refuses new ones once Close has been called.
func (m *Manager) begin(ctx context.Context, op, key string) (Resource, error) {
	res, err := m.Resource(key)
	if err != nil {
		return nil, m.fail(op, keys.Escape(m.cfg.Family.Name), err)
	}
	if err := ctx.Err(); err != nil {
		return nil, m.fail(op, res.Label(), err)
	}
	if !m.count() {
		m.done()
		return nil, m.fail(op, res.Label(), leasehold.ErrClosed)
	}
	return res, nil
}

// count counts an operation in, so that Close waits until done is called for it. It counts
// operations that start after Close has begun, too. It reports whether the handle is still
// open.
func (m *Manager) count() (open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running++
	return !m.closed
}

// done ends an operation that was counted.
func (m *Manager) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running--; m.running == 0 {
		m.idle.Broadcast()
	}
}

// Go runs send on a new goroutine that Close waits for.
func (m *Manager) Go(send func()) {
	m.count()
	go func() {
		defer m.done()
		send()
	}()
}

// A waiter is one Acquire under way. It is in one of two states:
//
//   - entering: an enter is under way, is to be sent after a pause, or waits for the server's
//     clock. The waiter is in no group.
//   - queued: the server answered "queued". The waiter is in its group, and the group asks for
//     it.
//
// A verdict arrives in one of four ways: the reply to the waiter's enter, a grant in the reply
// to another call of this handle, a message, or the reply to the group's ask. The first
// verdict that ends the attempt takes the waiter off the manager's list (settle), so a later
// verdict does not find it. The verdict Gone ("enter again") leaves the waiter on the list. A
// grant that arrives before the waiter has woken then replaces Gone. That is right, because
// the grant is newer.
//
// Anything else that ends the wait (ctx, MaxWait, Close) may cross a grant that is on its way.
// So the waiter sends a leave, and repeats it until it is answered, unless it is certain that
// nothing is left behind in Redis.
type waiter struct {
	m   *Manager
	res Resource
	Attempt
	maxWait <-chan time.Time // fires when MaxWait is over; nil: no bound

	// The current attempt. newRequest sets these fields and gives each attempt its own
	// request.
	req    Request
	seq    uint64
	wake   chan struct{} // receives when there is a verdict; holds one signal
	enters int           // how many were sent for this attempt, or are about to be
	// enterMayArriveUntil is the server time (µs) until which a copy of an enter of this
	// attempt may still arrive; 0: none can.
	enterMayArriveUntil int64
	lateTold            bool // its grant must not be reported as late (again)

	asked        time.Time // when the last call that the waiter itself waits for was begun
	ticket       int64     // place in the queue, once it had one
	failures     int       // consecutive calls without an answer
	failingSince time.Time // when the first of them was sent
	lastFailure  error     // why the last of them failed; nil: the last call was answered
	restarts     int

	returnsQueued bool // follow returns errQueued instead of waiting in the queue
	queuesAgain   bool // it has just given its lease back, so MaxWaiters does not apply

	// Guarded by the manager's lock.
	verdict      Verdict
	state        *State // the last state that Redis reported with "queued"
	group        *group // nil unless it is queued
	earlyMessage string // a message that came before the reply "queued"
	leftGroup    time.Time
	keyState     *State // the state of its own key, if its group has waiters for several keys
}

// An event ends a pause of a waiter.
type event int

const (
	answered event = iota // the thing that it waits for has come
	woken                 // there is a verdict
	ctxEnded
	maxWaitOver
	handleClosed
)

// next waits for the first event. ready delivers the thing that the waiter waits for besides
// its verdict; nil: nothing.
func next[T any](ctx context.Context, w *waiter, ready <-chan T) event {
	select {
	case <-ready:
		return answered
	case <-w.wake:
		return woken
	case <-ctx.Done():
		return ctxEnded
	case <-w.maxWait:
		return maxWaitOver
	case <-w.m.closing:
		return handleClosed
	}
}

// newRequest starts a new attempt. The manager lists it before its enter is sent, because a
// grant may arrive in another way before the reply.
func (w *waiter) newRequest() {
	m := w.m
	seq := m.seq.Add(1)
	req := w.res.Request(Terms{
		Handle: m.handle, Seq: seq, Permits: w.Permits, TTL: m.cfg.TTL, Limit: w.Limit, Want: w.Want,
	})
	w.enters, w.enterMayArriveUntil, w.lateTold = 0, 0, false
	if !w.Wait {
		w.seq, w.req = seq, req
		return // never queued, so no other process can grant to it
	}
	wake := make(chan struct{}, 1)
	m.mu.Lock() // the inbox may still look at the previous attempt
	w.seq, w.req, w.wake, w.earlyMessage = seq, req, wake, ""
	m.waiters[seq] = w
	m.mu.Unlock()
}

// run enters and waits until the attempt is granted, answered or ended.
func (w *waiter) run(ctx context.Context, into *Lease) (answer any, err error) {
	if !w.Wait {
		if err := w.m.client.Reachable(ctx, w.res.FirstKey()); err != nil {
			return nil, w.fail(ctx.Err(), leasehold.ErrUnavailable, err)
		}
	}
	v, err := w.enter(ctx)
	return w.follow(ctx, v, err, into)
}

// follow continues an attempt whose enter returned v and err.
func (w *waiter) follow(ctx context.Context, v Verdict, err error, into *Lease) (answer any, _ error) {
	for ; ; v, err = w.enter(ctx) {
		if err == nil && v.Code == Queued {
			if err := w.mayWait(ctx); err != nil {
				w.abandon()
				return nil, err
			}
			w.waits()
			if w.returnsQueued {
				return nil, errQueued
			}
			v, err = w.awaitVerdict(ctx)
		}
		if err == nil && v.Code == Granted && w.m.replicated() && !v.Confirmed {
			v, err = w.confirmGrant(ctx, v)
		}
		if err != nil {
			return nil, err
		}
		switch v.Code {
		case Granted:
			unusable := into.start(ctx, w, v)
			if unusable == nil {
				return nil, nil
			}
			w.lateTold = true
			w.m.events.lateGrant(w.res, w.req)
			switch {
			case errors.Is(unusable, leasehold.ErrClosed):
				w.abandon()
				return nil, w.fail(unusable)
			case !w.Wait:
				// Another try might find the permits of this one taken, and say that they
				// are others'.
				w.abandon()
				return nil, w.fail(leasehold.ErrUnavailable, unusable)
			}
			if err := w.restart(ctx, unusable); err != nil {
				return nil, err
			}
		case Answered:
			w.finish()
			return v.Answer, nil
		case TooMany:
			w.finish()
			return nil, w.fail(keys.Invalid("asks for %d permits; the limit is %d", w.Permits, v.Limit))
		case Failed:
			w.abandon()
			return nil, w.fail(leasehold.ErrUnavailable, v.Err)
		case Gone: // enter again, with the same request and ticket
			if v.Lapsed && !w.m.cfg.Rejoins {
				if err := w.endIfRevoked(ctx); err != nil {
					return nil, err
				}
			}
		}
	}
}

// start makes l the lease of a granted waiter and schedules its renewals. It returns an error
// if the grant cannot be used, because it is over already or the handle is closed.
func (l *Lease) start(ctx context.Context, w *waiter, v Verdict) error {
	m, now := w.m, time.Now()
	if !v.Deadline.After(now) {
		return errLate
	}
	if l.m != nil {
		panic("leasehold: a lease was copied, or acquired into twice")
	}
	if w.Parent != nil {
		ctx = w.Parent
	}
	l.self = l
	l.m, l.key, l.res, l.req, l.token, l.parent, l.since = m, w.Key, w.res, w.req, v.Token, Hold{ctx, l}, now
	l.permits, l.seq = w.Permits, w.seq
	l.enterMayArriveUntil, l.turns, l.byEnter = w.enterMayArriveUntil, w.Turns, v.ByEnter
	l.quiet.Store(w.Quiet)
	if m.cfg.MaxHold > 0 && w.Turns == nil {
		l.maxEnd = now.Add(m.cfg.MaxHold)
	}
	l.mu.Lock() // Stop finds the lease as soon as it is on the manager's list
	l.deadline = v.Deadline
	l.planRenewal(now)
	at, slack := l.nextDue()
	l.mu.Unlock()
	m.mu.Lock()
	delete(m.waiters, w.seq)
	w.leaveGroup()
	closed := m.closed
	if !closed {
		m.leases[l.seq] = l
	}
	m.mu.Unlock()
	if closed {
		l.m = nil
		return leasehold.ErrClosed
	}
	m.loop.Put(&l.entry, l, at, slack)
	m.watch.add(l)
	return nil
}

func (w *waiter) waits() {
	if w.OnWait != nil {
		w.OnWait()
	}
}

var errLate = errors.New("the reply came later than the lease lasts")

// enter sends the enter until it is answered, and returns the result: Queued or a verdict.
func (w *waiter) enter(ctx context.Context) (Verdict, error) {
	for {
		select {
		case <-w.m.closing:
			return w.end(ctx, handleClosed, nil)
		default:
		}
		began := time.Now()
		w.asked = began
		now, clock := w.m.client.Now(w.res.FirstKey())
		if clock != nil {
			switch ev := next(ctx, w, clock.Answered()); ev {
			case answered:
			case woken:
				return w.heard(), nil
			default:
				return w.end(ctx, ev, errNoAnswer)
			}
			if clock.Err() != nil {
				if v, again, err := w.retry(ctx, clock.Err(), began); !again {
					return v, err
				}
			}
			continue
		}
		if w.BeforeEnter != nil {
			w.BeforeEnter()
		}
		e := w.prepare(now)
		if ctx.Done() == nil && w.maxWait == nil && e.seat == nil {
			e.take(w.m.client.Do(ctx, e.call)) // nothing can end the call early, so save the switch to another goroutine
		} else {
			e.start(ctx)
			if ev := next(ctx, w, e.done); ev != answered {
				return w.endInFlight(ctx, ev, e)
			}
		}
		if v, again, err := w.onEnterDone(ctx, e); !again {
			return v, err
		}
	}
}

// An enterCall is one enter on its way. Its goroutine may outlive the attempt.
type enterCall struct {
	w     *waiter
	seat  *call.Seat // nil: by itself
	req   Request
	call  *call.Call
	made  time.Time
	void  int64 // server time (µs) from which on the enter does nothing; see call.Call.Void
	done  chan struct{}
	reply EnterReply
	err   error
}

// prepare makes the enter that is sent next. now is the latest time that the server's clock can
// show.
func (w *waiter) prepare(now int64) *enterCall {
	e := &enterCall{w: w, seat: w.Seat, req: w.req, made: time.Now(), void: now + voidAfter.Microseconds()}
	o := EnterOptions{VoidAfter: &e.void, Wait: w.Wait, Ticket: w.ticket, MaxWaiters: w.m.cfg.MaxWaiters}
	if w.ticket != 0 || w.queuesAgain {
		o.MaxWaiters = 0 // it has a place in the queue already
	}
	w.enters++
	e.call = w.req.Enter(o)
	e.call.Confirm, e.call.Void, e.call.VoidAfter = w.m.confirm, &e.void, voidAfter
	w.Seat = nil // only the first enter uses the seat
	return e
}

// start sends the enter and does not wait. The waiter may have left when the reply comes. The
// reply is processed all the same, because it may carry grants to other waiters.
func (e *enterCall) start(ctx context.Context) {
	m := e.w.m
	e.done, e.err = make(chan struct{}), errNoAnswer // errNoAnswer stays if a hook ends the goroutine
	if e.seat != nil {
		m.Go(func() {
			defer close(e.done)
			e.take(e.seat.Do(ctx, m.client, e.call))
		})
		return
	}
	m.count()
	e.call.Done = func(ints []int64, err error) {
		defer m.done()
		defer close(e.done)
		e.take(ints, err)
	}
	m.client.Start(ctx, nil, e.call)
}

// take processes the outcome of the enter.
func (e *enterCall) take(ints []int64, err error) {
	if e.err = err; e.err == nil {
		e.reply, e.err = e.req.ReadEnter(e.call, ints)
	}
	if e.err == nil {
		e.w.m.deliver(e.reply.Grants, e.call.Sent)
		if e.reply.More {
			e.w.m.goOn(e.w.res)
		}
	}
	e.w.m.reached(e.w.res, e.err)
}

// began returns when the enter was sent, or else when it was made.
func (e *enterCall) began() time.Time {
	if e.call.Sent.IsZero() {
		return e.made
	}
	return e.call.Sent
}

// endInFlight ends the wait for an enter that is under way, either with a verdict that came in
// another way or for good.
func (w *waiter) endInFlight(ctx context.Context, ev event, e *enterCall) (Verdict, error) {
	if ev == woken {
		v := w.heard()
		if e.call.Withdraw() {
			w.enters--
		} else {
			w.mayArriveUntil(e.void) // what was granted may be another copy
		}
		return v, nil
	}
	if e.call.Withdraw() {
		w.enters-- // it was not sent, and never will be
		return w.end(ctx, ev, w.lastFailure)
	}
	w.mayArriveUntil(e.void)
	return w.end(ctx, ev, errNoAnswer)
}

// onEnterDone processes the outcome of an enter. If again is true, the enter is to be sent
// again.
func (w *waiter) onEnterDone(ctx context.Context, e *enterCall) (v Verdict, again bool, err error) {
	if e.err != nil {
		w.onNoAnswer(e)
		w.waits()
		return w.retry(ctx, e.err, e.began())
	}
	if e.call.Copied() {
		w.mayArriveUntil(e.void)
		w.m.askSoon(w.res) // as for a lost reply
	}
	w.failures, w.lastFailure = 0, nil
	clock := call.Sample{Micros: e.reply.Now, Sent: e.call.Sent, Got: time.Now()}
	w.m.client.Learn(w.res.FirstKey(), clock)
	w.m.events.roundTrip(w.m.cfg.TTL, clock.Got.Sub(clock.Sent))
	if v, err = w.onEnterReply(ctx, &e.reply, clock); err == nil && v.Code == Granted && w.m.replicated() && e.call.Confirm == w.m.confirm {
		v, err = w.requireConfirmed(v, e.call)
	}
	return v, false, err
}

// onEnterReply turns the reply to an enter into a verdict.
func (w *waiter) onEnterReply(ctx context.Context, r *EnterReply, clock call.Sample) (Verdict, error) {
	switch r.Code {
	case Granted:
		return Verdict{Code: Granted, Deadline: deadline(clock.Sent, r.Term), Token: r.Token, ByEnter: true}, nil
	case Answered:
		return Verdict{Code: Answered, Answer: r.Answer}, nil
	case Queued:
		if w.ticket == 0 {
			w.ticket = r.Now
		}
		state := r.State // a copy, so that the reply can be freed
		state.AsOf = clock.Got
		w.joinGroup(clock, state)
		return Verdict{Code: Queued}, nil
	case Void:
		// The estimate of the server's clock was off. The reply has corrected it.
		if w.restarts++; w.restarts >= maxRestarts {
			w.abandon()
			return Verdict{}, w.fail(leasehold.ErrUnavailable, errLate)
		}
		return Verdict{Code: Gone}, nil
	case GivenUp:
		// The attempt was revoked, or somebody else deleted keys. A new attempt has a new
		// owner id, so the scripts do not mistake it for the one that was given up.
		return Verdict{Code: Gone}, w.restart(ctx, errors.New("the queue's keys do not fit together"))
	case TooMany:
		return Verdict{Code: TooMany, Limit: r.State.Limit}, nil
	case QueueFull:
		w.finish()
		return Verdict{}, w.fail(leasehold.ErrQueueFull, w.m.busyError(r.State))
	default: // Busy
		w.finish()
		return Verdict{}, w.fail(w.m.busyError(r.State))
	}
}

// onNoAnswer notes what an enter without an answer may have left behind.
func (w *waiter) onNoAnswer(e *enterCall) {
	switch {
	case errors.Is(e.err, call.ErrNotSent):
		w.enters--
	case call.Classify(e.err) == call.Unknown || e.call.Copied():
		w.mayArriveUntil(e.void)
		w.m.askSoon(w.res) // the lost reply may have carried grants to our waiters
	}
}

// mayArriveUntil notes that a copy of an enter may still arrive until the server time void.
func (w *waiter) mayArriveUntil(void int64) {
	w.enterMayArriveUntil = max(w.enterMayArriveUntil, void)
}

// retry handles an enter, or a question for the server's clock, that has no answer because of
// err. since is when it was sent. If again is true, the caller sends the same request again;
// retry has paused already. Otherwise the attempt has its verdict or its error. The request
// stays the same, so that it takes nothing twice.
func (w *waiter) retry(ctx context.Context, err error, since time.Time) (v Verdict, again bool, _ error) {
	if ctx.Err() != nil {
		if errors.Is(err, call.ErrNotSent) && w.failures == 0 {
			err = nil // it was dropped because ctx had ended
		}
		v, err = w.end(ctx, ctxEnded, err)
		return v, false, err
	}
	if w.failures++; w.failures == 1 {
		w.failingSince = since
	}
	w.lastFailure = err
	pause := call.Backoff(w.failures)
	if wrongType(err) {
		// The scripts check the types of all keys before they write, so this enter did
		// nothing. A leave would be refused for the same reason.
		w.finish()
		return Verdict{}, false, w.fail(leasehold.ErrUnavailable, err)
	}
	givesUp := !w.Wait && w.failures >= maxTries || (!w.Wait || w.m.cfg.FailsFast) && w.m.client.Away(w.res.FirstKey())
	if call.Classify(err) == call.Refused || givesUp || time.Since(w.failingSince)+pause > patience {
		w.abandon()
		return Verdict{}, false, w.fail(leasehold.ErrUnavailable, err)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	switch ev := next(ctx, w, timer.C); ev {
	case answered:
		return Verdict{}, true, nil
	case woken:
		return w.heard(), false, nil
	default:
		v, err = w.end(ctx, ev, err)
		return v, false, err
	}
}

// awaitVerdict waits in the queue for the verdict.
func (w *waiter) awaitVerdict(ctx context.Context) (Verdict, error) {
	if ev := next[struct{}](ctx, w, nil); ev != woken {
		return w.end(ctx, ev, nil)
	}
	return w.heard(), nil
}

// lastState returns the last state of the resource that Redis reported, or nil if there is
// none. Called with the manager's lock.
func (w *waiter) lastState() *State {
	switch {
	case w.group == nil:
		return w.state
	case w.keyState != nil:
		state := *w.keyState
		return &state
	}
	state := w.group.state
	return &state
}

// end ends the attempt because of ev, and gives back in the background whatever was or may
// still be granted to it. cause says why Redis has not answered; it is nil if no call is under
// way and the last one was answered.
func (w *waiter) end(ctx context.Context, ev event, cause error) (Verdict, error) {
	m := w.m
	m.mu.Lock()
	state := w.lastState()
	silent := w.group != nil && w.group.silent()
	m.mu.Unlock()
	if cause != nil && (w.failures > 0 || time.Since(w.asked) > silence) {
		silent = true
	}
	w.abandon()
	var errs []error
	if ev == ctxEnded {
		errs = append(errs, ctx.Err())
	}
	switch {
	case ev == handleClosed:
		errs = append(errs, leasehold.ErrClosed)
	case state != nil && !silent:
		errs = append(errs, m.busyError(*state))
	case state != nil || cause != nil || ev == maxWaitOver:
		// Redis has not answered this request, or no longer does. It is not known to be busy.
		errs = append(errs, leasehold.ErrUnavailable, cmp.Or(cause, errNoAnswer))
	}
	return Verdict{}, w.fail(errs...)
}

// endIfRevoked asks Redis whether the attempt was revoked. It returns nil only if Redis says
// that it was not: a revoked attempt must not enter again, and its lease would be one that was
// taken away. Otherwise it ends the attempt and returns the error.
func (w *waiter) endIfRevoked(ctx context.Context) error {
	var end, err error
	done := make(chan struct{})
	w.asked = time.Now()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	w.m.Go(func() {
		defer close(done)
		end, err = w.m.revocation(asking, w.req, patience)
	})
	// A verdict that comes meanwhile is left for the next enter to hear: a grant settles the
	// attempt, and the waiter would not be told of anything else.
	ev := answered
	select {
	case <-done:
	case <-ctx.Done():
		ev = ctxEnded
	case <-w.maxWait:
		ev = maxWaitOver
	case <-w.m.closing:
		ev = handleClosed
	}
	if ev != answered {
		_, err := w.end(ctx, ev, errNoAnswer)
		return err
	}
	switch {
	case end != nil:
		w.finish()
		return w.fail(end)
	case err != nil && ctx.Err() != nil:
		_, err = w.end(ctx, ctxEnded, err)
		return err
	case err != nil:
		w.abandon()
		return w.fail(leasehold.ErrUnavailable, err)
	}
	return nil
}

// restart gives up this attempt's request and begins another one, with the same ticket. It
// does not do so if the attempt was revoked: a new request would take what was taken away.
func (w *waiter) restart(ctx context.Context, why error) error {
	if err := w.endIfRevoked(ctx); err != nil {
		return err
	}
	w.abandon()
	if w.restarts++; w.restarts >= maxRestarts {
		return w.fail(leasehold.ErrUnavailable, why)
	}
	w.newRequest()
	return nil
}

// finish ends an attempt of which, by Redis' answer, nothing is left behind. It sends a leave
// only if a copy of the enter may still arrive.
func (w *waiter) finish() {
	if w.enterMayArriveUntil != 0 {
		w.abandon()
		return
	}
	w.forget()
}

// abandon ends an attempt and gives back whatever it was or may still be granted. It sends
// nothing if none of the attempt's enters was sent.
func (w *waiter) abandon() {
	w.forget()
	if w.enters == 0 {
		return
	}
	g := w.m.newGiveBack(w.res, w.req, w.enterMayArriveUntil)
	g.heldIsLate.Store(!w.lateTold)
	w.m.giveBackLater(g)
}

// forget takes the waiter off the manager's lists.
func (w *waiter) forget() {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	delete(w.m.waiters, w.seq)
	w.leaveGroup()
}

// tell gives the waiter a verdict and wakes it. A verdict replaces an earlier one that the
// waiter has not read yet, because it is newer. Called with the manager's lock.
func (w *waiter) tell(v Verdict) {
	w.verdict = v
	select {
	case w.wake <- struct{}{}:
	default: // it will wake for the verdict before, and hear this one
	}
}

// settle gives the waiter a verdict that ends its attempt. Called with the manager's lock.
func (w *waiter) settle(v Verdict) {
	delete(w.m.waiters, w.seq)
	w.leaveGroup()
	w.tell(v)
}

// heard returns the verdict that woke the waiter.
func (w *waiter) heard() Verdict {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.verdict
}

func (w *waiter) fail(errs ...error) error { return w.m.fail(w.Op, w.res.Label(), errs...) }
