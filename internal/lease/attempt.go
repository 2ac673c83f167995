package lease

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// An attempt is one owner id of the handle, and the driver of its life: it sends the calls,
// feeds their outcomes to the life in the order in which they are seen, and does what the life
// says. One Acquire may need several attempts, one after the other. The manager's lock guards
// the life and the fields below it.
type attempt struct {
	m   *Manager
	res protocol.Resource
	req protocol.Request
	seq uint64

	key               string // this and the next three are its Attempt's
	permits           int
	turns             Turns
	own, keeps, quiet bool

	entry schedule.Entry // guarded by the schedule

	life   life.Life
	heard  *protocol.Result // why its caller or releaser is told something other than the lease
	wake   chan struct{}    // holds one signal; nil: nobody has slept for it yet
	dueAt  life.Moment      // when its entry is due; 0 or never: it is not scheduled
	call   *call.Call       // that the schedule sent for its present state, until it has its outcome
	void   int64            // server time (µs) until which a copy of an enter may still arrive; 0: none can
	ticket int64            // place in the queue, once it had one

	group     *group          // that asks for it, while it is queued
	lastState *protocol.State // of its key, if its group has others, or if it left its group
	leftGroup life.Moment

	token   uint64
	grantAt life.Moment             // when the process learned of the grant
	place   int32                   // among the group's waiters
	state   life.State              // of the life after the last step
	byEnter bool                    // see Lease.ByEnter
	watched bool                    // its key is watched, so that hints are heard
	turned  bool                    // see Lease.ServeTurns
	kept    *kept                   // what matters for kept leases alone; nil: nothing
	failure error                   // of the last enter or renewal, if it was not answered; or what led to why, if known
	why     error                   // why the lease is over; nil: it is not
	ctx     context.Context         // of its holder; nil: nobody has asked for it
	cancel  context.CancelCauseFunc // ends it
}

var (
	errNoAnswer = errors.New("no answer in time")          // the outcome is not known
	errGone     = errors.New("it has ended on the server") // the server said that the lease is lost
	errLate     = errors.New("the reply came later than the lease lasts")
)

// newAttempt makes an attempt with an owner id of its own, so that the scripts do not mistake it for an earlier one.
func (m *Manager) newAttempt(res protocol.Resource, of Attempt) *attempt {
	a := &attempt{
		m: m, res: res, seq: m.seq.Add(1), key: of.Key, permits: of.Permits, turns: of.Turns, own: of.Own, keeps: of.Keeps, quiet: of.Quiet,
	}
	a.life = life.New(life.Options{
		TTL: m.cfg.TTL, MaxHold: m.cfg.MaxHold, Waits: of.Wait, FailsFast: m.cfg.FailsFast, Confirms: m.NeedsReplicas(), Dice: rand.Uint32() | 1,
	})
	if of.Turns != nil { // each turn has its own MaxHold
		a.life.MaxHold = 0
	}
	a.req = res.Request(protocol.Terms{Handle: m.handle, Seq: a.seq, Permits: of.Permits, TTL: m.cfg.TTL, Limit: of.Limit, Keeps: of.Keeps, Want: of.Want})
	return a
}

// now returns the present moment.
func (m *Manager) now() life.Moment { return time.Since(m.born) }

// moment returns t as a moment.
func (m *Manager) moment(t time.Time) life.Moment { return t.Sub(m.born) }

// time returns a moment as a time. The moment 0 is no time.
func (m *Manager) time(at life.Moment) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return m.born.Add(at)
}

// step locks the handle, makes a step of the life, and does what follows from it. r is what the
// step is about; nil: time, or a wish of the user.
func (a *attempt) step(r *protocol.Result, do func(now life.Moment) life.Effect) {
	a.m.mu.Lock()
	end := a.after(do(a.m.now()), r)
	a.m.mu.Unlock()
	end.tell()
}

// news makes the step of a waiting attempt for what another call than its own enter says, sent
// at the moment sent: the ask of its group (asked), or a call that granted to it. Called with the
// lock.
func (a *attempt) news(r *protocol.Result, asked bool, sent life.Moment) {
	if a.group != nil {
		r.Trip = a.group.asking.Trip()
	}
	a.after(a.life.OnNews(&r.Outcome, asked, sent, a.m.now()), r)
}

// after does what follows from a step of the life. r is what the step was about. Called with the
// lock. Its caller frees the lock and then calls tell of the result.
func (a *attempt) after(fx life.Effect, r *protocol.Result) (end endedLease) {
	m := a.m
	if was := a.state; a.life.State != was {
		a.state, a.call = a.life.State, nil
		a.moved(was, r)
	}
	if a.life.Told != life.WaitOn && a.heard == nil && r != nil {
		a.heard = new(protocol.Result)
		*a.heard = *r
	}
	if fx&life.CameLate != 0 {
		a.tellLate()
	}
	if fx&life.HoldEnded != 0 {
		end = a.ended(r)
	}
	if fx&life.Ask != 0 {
		m.replyLost(a.res)
	}
	if fx&life.Wake != 0 && a.wake != nil {
		select {
		case a.wake <- struct{}{}:
		default: // it will wake for the signal before, and look
		}
	}
	a.reschedule()
	return end
}

// moved keeps the lists of the handle.
func (a *attempt) moved(was life.State, r *protocol.Result) {
	m := a.m
	if was == life.Waiting {
		a.leaveGroup()
	}
	if a.life.State == life.Holding {
		a.token, a.grantAt, a.failure = r.Token, m.now(), nil
	}
	if was <= life.Holding && a.life.State > life.Holding {
		delete(m.attempts, a.seq)
		if was == life.Holding {
			m.held--
			m.closeIfDrained()
			if a.watched {
				a.watched = false
				m.inbox.Unwatch(a.res.FirstKey())
			}
		}
	} else if a.life.State == life.Holding {
		m.held++
	}
}

// ended notes why a lease ended for its holder.
func (a *attempt) ended(r *protocol.Result) endedLease {
	var cause error
	switch a.life.Ending {
	case life.ByHolder:
		a.why = leasehold.ErrReleased
	case life.ByClose:
		a.why = leasehold.ErrClosed
	case life.ByMaxHold:
		a.why = leasehold.ErrMaxHold
	case life.ByDeadline:
		a.why, cause = leasehold.ErrLost, cmp.Or(a.failure, a.m.client.Trouble(a.res.FirstKey()), errNoAnswer)
	case life.ByServer:
		a.why, cause = leasehold.ErrLost, errGone
	case life.ByRevoker:
		a.why = &leasehold.RevokedError{Reason: r.Reason}
	case life.ByProtocol:
		a.why = r.Err
	case life.ByForeign:
		a.why, cause = leasehold.ErrLost, r.Err
	}
	a.failure = cause
	if !a.life.Idle { // else nobody used it, so nobody was harmed
		a.tellEnded(a.why, true)
	}
	if a.turns != nil && a.life.Ending != life.ByHolder {
		a.m.running++
		a.m.spawn(a.turns.LeaseEnded)
	}
	if a.cancel == nil {
		return endedLease{}
	}
	return endedLease{a.ctx, a.cancel, a.fail("hold")}
}

// fail returns the error of an operation on a lease that is over. Called with the lock, or once
// why can no longer change.
func (a *attempt) fail(op string) error { return a.m.fail(op, a.res.Label(), a.why, a.failure) }

// due returns when the schedule is to look at the attempt: when its life is due, or its lease is to
// be watched.
func (a *attempt) due() (at life.Moment, slack time.Duration) {
	at, slack = a.life.Due()
	if old := a.grantAt + watchAfter; a.life.State == life.Holding && !a.watched && old < at {
		return old, watchAfter / 4
	}
	return at, slack
}

// reschedule puts the attempt into the schedule for when it is due, or takes it out.
func (a *attempt) reschedule() {
	at, slack := a.due()
	switch {
	case at == a.dueAt || at == life.Never && a.dueAt == 0:
		return
	case at == life.Never:
		a.m.loop.Remove(&a.entry)
	default:
		a.m.loop.Put(&a.entry, a, a.m.time(at), slack)
	}
	a.dueAt = at
}

// Due sends the renewal or the leave that is due. One that stands in the queue of its server, or
// whose answer is not late, is not repeated.
func (a *attempt) Due(t time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	m := a.m
	m.mu.Lock()
	now := m.moment(t)
	if a.life.State == life.Holding && !a.watched && now >= a.grantAt+watchAfter*3/4 {
		a.watch(now)
	}
	pending := life.Moment(0)
	if a.call != nil {
		patience, longest := a.life.Patience(now)
		if until, still := a.call.Pending(t, patience, longest); still {
			pending = m.moment(until)
		}
	}
	do, fx := a.life.Tick(now, pending)
	at, slack := a.due()
	a.dueAt = at // the schedule learns it from what Due returns
	end := a.after(fx, nil)
	var c *call.Call
	switch do {
	case life.ToRenew, life.ToProbe:
		term := life.ProbeTerm
		if do == life.ToRenew {
			term = a.life.Term(now)
		}
		c = a.renewal(t, protocol.RenewOptions{Term: term, FewKeys: call.Scattered(a.failure)})
		c.Done = func(ints []int64, err error) { _ = a.onRenewed(c, term, ints, err) }
	case life.ToLeave:
		c = a.leaveCall()
		c.Done = func(ints []int64, err error) { a.onLeft(c, ints, err) }
	}
	if c != nil {
		a.call = c
		calls = append(calls, c)
	}
	m.mu.Unlock()
	end.tell()
	if at == life.Never {
		return calls, time.Time{}, 0
	}
	return calls, m.time(at), slack
}

// hear reads the outcome of a call about the attempt: what the server says, or why there is no
// answer, whether a copy of the call may still run, and whether replicas confirmed it. Grants to
// others in it are passed on.
func (a *attempt) hear(c *call.Call, ints []int64, err error, read func(reply []int64) (protocol.Reply, error)) (r protocol.Reply) {
	if err == nil {
		r, err = read(ints)
	}
	a.m.reached(a.res, err)
	if err != nil {
		r.Result = a.noReply(err)
	} else if len(r.Grants) > 0 {
		a.m.Granted(r.Grants, c.Sent)
	}
	if r.Copied = c.Copied(); r.Code == life.Granted || r.Code == life.Held {
		missing := c.Unconfirmed()
		r.TooFew, r.Confirmed = missing != nil, missing == nil && c.Confirm == a.m.confirm
		r.Err = cmp.Or(missing, r.Err)
	}
	return r
}

// noReply returns the Result of a call that failed with err.
func (a *attempt) noReply(err error) protocol.Result {
	r := protocol.Result{Outcome: life.Outcome{Code: life.Unanswered}, Err: err}
	reason, revoked := call.Revoked(err)
	switch class := call.Classify(err); {
	case revoked:
		return protocol.Result{Outcome: life.Outcome{Code: life.Revoked}, Reason: reason}
	case strings.Contains(err.Error(), "WRONGTYPE"):
		r.Code = life.Foreign // the scripts check the types of all keys before they write
	case class == call.Refused:
		r.Code = life.Refused
	case class == call.NotNow:
		r.Code = life.NotSent
	}
	r.Away = r.Code >= life.NotSent && a.m.client.Away(a.res.FirstKey())
	return r
}

// renewal prepares a call that renews the lease. Called with the lock, or with the caller's
// own view of the deadline.
func (a *attempt) renewal(now time.Time, o protocol.RenewOptions) *call.Call {
	o.EnterMayArriveUntil, o.HeldFor = a.void, a.m.moment(now)-a.grantAt
	c := a.req.Renew(o)
	c.Rank, c.By, c.Confirm = call.KeepsLease, a.m.time(a.life.Deadline), a.m.confirm
	return c
}

// onRenewed processes the outcome of the renewal c for term, and returns its Result.
func (a *attempt) onRenewed(c *call.Call, term time.Duration, ints []int64, err error) protocol.Reply {
	m := a.m
	r := a.hear(c, ints, err, a.req.ReadRenew)
	a.step(&r.Result, func(now life.Moment) life.Effect {
		if a.call == c {
			a.call = nil // it takes more memory than the lease
		}
		if a.life.State == life.Holding {
			a.failure = call.Cause(r.Err) // no ctx of an Extend is the holder's
			if term != life.ProbeTerm || r.Code != life.Granted {
				m.tellRenewed(m.time(a.life.Deadline), &r.Result)
			}
		}
		return a.life.OnRenew(&r.Outcome, term, m.moment(c.Sent), now)
	})
	return r
}

// leaveCall prepares a leave. It goes ahead of other calls in the queue of its server. Called with the lock.
func (a *attempt) leaveCall() *call.Call {
	c := a.req.Leave(a.void, a.life.Complete)
	c.Rank = call.GivesBack
	if a.life.Complete {
		c.Confirm = a.m.confirm
	}
	return c
}

// onLeft processes the outcome of the leave c.
func (a *attempt) onLeft(c *call.Call, ints []int64, err error) {
	r := a.hear(c, ints, err, a.req.ReadLeave)
	a.step(&r.Result, func(now life.Moment) life.Effect {
		fx := a.life.OnLeave(&r.Outcome, now)
		if r.Code == life.Revoked {
			fx |= life.Ask // the answer did not tell of the grants that the call made
		}
		return fx
	})
	if r.More {
		a.m.Go(a.handOn)
	}
}
