package life

import "time"

// The life of an attempt from its grant on.

// grant takes a grant. Its term is counted from the sending of the call that says so, because
// the server cannot have counted it from earlier.
func (a *Life) grant(r *Outcome, sent, now Moment) Effect {
	a.until = max(a.until, now+r.Term)
	a.Deadline = sent + r.Term - Margin(r.Term)
	a.State, a.Fails = Holding, 0
	switch {
	case r.TooFew:
		a.Confirms = false
		return a.drop(TellNoAnswer)
	case a.Deadline <= now:
		return a.giveBackLate(now)
	}
	a.plan(false, now)
	// A waiter's first term may be over before the answer to a renewal that is sent later.
	brief := r.Term < a.TTL && a.Deadline-now < briefTrips*max(now-sent, r.Trip)
	if a.Confirms = a.Confirms && !r.Confirmed || brief; a.Confirms {
		a.renewAt, a.Since = now, now // an own renewal confirms the grant first
		return 0
	}
	if a.asks { // it may have been revoked meanwhile
		a.asks, a.renewAt, a.probes = false, now, true
	}
	return Wake
}

// giveBackLate gives back a grant that came too late. A caller that waits is told "again" only
// when the leave is answered, because the answer may say that the attempt was revoked. One that
// does not wait might find the permits of this attempt taken, and take them for others'.
func (a *Life) giveBackLate(now Moment) Effect {
	a.State, a.Told, a.again, a.Since, a.Fails = Leaving, WaitOn, a.Waits, now, 0
	if !a.Waits {
		a.Told = TellLate
	}
	return Wake | CameLate
}

// plan sets the next renewal to a third of the time that is left, less up to a tenth of that. A
// probe changes nothing, so after one the renewal is due when two thirds of the TTL are left, as
// before: hints may come all the time, and must not put it off.
func (a *Life) plan(probed bool, now Moment) {
	left := max(0, min(a.Deadline-now, a.TTL))
	in := left / 3
	if probed {
		in = max(0, left-2*a.TTL/3)
	}
	a.renewAt = now + in - a.spread(in/10+1)
}

// notice ends a lease whose deadline has passed: that counts before every event but the answer
// to a renewal. Nothing is given back here, because the holder may need the margin to stop. A grant
// that is to be confirmed has no holder: the answer to its renewal says whether it lasts.
func (a *Life) notice(now Moment) Effect {
	if a.State == Holding && now >= a.end() {
		return a.lose(ByDeadline, now)
	}
	return 0
}

// end returns the moment at which the lease ends for its holder if no renewal is answered.
func (a *Life) end() Moment {
	if a.Confirms {
		return Never
	}
	return a.Deadline
}

// lose ends a lease that is gone, or may be. One that is idle has no holder that needs time to
// stop, so it is given back at once, in case the server still has it.
func (a *Life) lose(why Ending, now Moment) Effect {
	a.State, a.Ending = Lost, why
	if a.Idle {
		a.State, a.Released, a.Next, a.Told = Leaving, true, now, TellDone
	}
	if !a.taken {
		return Wake
	}
	return HoldEnded
}

// OnRenew takes the outcome of a renewal for term that was sent at the moment sent. A renewal
// has no time from which on it does nothing, so one without an answer may have run just now, or
// may run later.
func (a *Life) OnRenew(r *Outcome, term time.Duration, sent, now Moment) Effect {
	switch r.Code {
	case Granted:
		a.until = max(a.until, now+r.Term)
	case Unanswered:
		a.until = max(a.until, now+term)
	}
	if (r.Copied || r.Code == Unanswered) && term != ProbeTerm {
		a.runs = max(a.runs, sent+VoidAfter) // a copy that runs late prolongs what is there then
	}
	if a.State == Over && !a.settled && a.until > now {
		a.State, a.Next = Leaving, now // it prolonged the term of a lease that no leave has ended
	}
	if a.State != Holding {
		return 0
	}
	switch r.Code {
	case Granted:
		return a.renewed(r, term == ProbeTerm, sent, now)
	case Revoked:
		return a.lostUntaken(TellRevoked, ByRevoker, now)
	case Gone:
		return a.lostUntaken(TellAgain, ByServer, now)
	case Ended:
		return a.lose(ByProtocol, now)
	case Foreign:
		return a.lostUntaken(TellNoAnswer, ByForeign, now)
	}
	fx := a.notice(now)
	if a.State == Holding && a.Confirms {
		a.Fails++
		if a.renewAt = now + a.backoff(a.Fails); r.Code == Refused || a.renewAt-a.Since > patience {
			a.late = true
			return fx | a.drop(TellNoAnswer)
		}
	}
	return fx // the next try is planned, and the deadline stays
}

// renewed moves the deadline, unless too few replicas confirmed the renewal: a replica that
// takes over from the primary may never have received it. No renewal shortens a lease on the
// server, so an older answer with an earlier end is ignored.
func (a *Life) renewed(r *Outcome, probed bool, sent, now Moment) (fx Effect) {
	switch {
	case !r.TooFew:
		a.Deadline = max(a.Deadline, sent+r.Term-Margin(r.Term))
	case a.Confirms:
		a.Confirms = false
		return a.drop(TellNoAnswer)
	}
	if fx = a.notice(now); a.State != Holding {
		return fx
	}
	a.Fails = 0
	hinted := a.renewAt
	a.plan(probed, now)
	// The renewal may have run before what a hint since its sending is about.
	if a.probes = a.probes && hinted < a.renewAt; a.probes {
		a.renewAt = hinted
	}
	if a.Confirms {
		a.Confirms = false
		return fx | Wake
	}
	return fx
}

// lostUntaken ends a lease that is gone. A caller that has not got it is told v.
func (a *Life) lostUntaken(v Verdict, why Ending, now Moment) Effect {
	if a.taken {
		return a.lose(why, now)
	}
	return a.drop(v)
}

// Release gives the lease back for its holder, and returns what it was: held, lost (or ended by
// MaxHold), or over, if it was given back before. If it was held, its leave counts as sent. On
// a handle that is closed, a lost lease ends by itself, because the schedule may have stopped.
func (a *Life) Release(now Moment, closed bool) (was State, fx Effect) {
	fx = a.notice(now)
	switch {
	case a.Released || a.Ending == ByClose:
		return Over, fx
	case a.State == Holding:
		a.State, a.Ending, a.Released = Leaving, ByHolder, true
		a.Since, a.Next, a.leaves, a.underWay = now, Never, 0, 1
		return Holding, HoldEnded
	case a.State == Lost && !closed:
		a.State, a.Next, a.Told = Leaving, now, TellDone
	}
	a.Released = true
	return Lost, fx
}

// GiveBack gives the lease back with no caller that waits for the answer.
func (a *Life) GiveBack(why Ending, now Moment) (fx Effect) {
	fx = a.notice(now)
	switch {
	case a.State == Holding && a.taken:
		a.State, a.Ending, a.Released, a.Next = Leaving, why, why == ByHolder, now
		a.Told = TellDone
		return HoldEnded
	case a.State == Lost && why == ByHolder:
		a.State, a.Released, a.Next, a.Told = Leaving, true, now, TellDone
	}
	return fx
}

// RenewSoon brings the next renewal forward.
func (a *Life) RenewSoon(now Moment) { a.renewAt, a.probes = min(a.renewAt, now), false }

// Rest makes a lease idle: its holder has let go of it, and it is kept and renewed for the next
// one. It reports whether the lease is held.
func (a *Life) Rest(now Moment) bool {
	a.Idle = a.State == Holding && a.taken && now < a.Deadline
	return a.Idle
}

// Resume gives an idle lease to a holder. It reports whether the lease is held.
func (a *Life) Resume(now Moment) bool {
	if a.State != Holding || now >= a.Deadline {
		return false
	}
	a.Idle = false
	return true
}

// End ends a lease that another call than a leave has given back.
func (a *Life) End(now Moment) Effect {
	fx := a.GiveBack(ByHolder, now)
	if a.State == Leaving {
		a.State, a.settled = Over, true
	}
	return fx
}

// Margin returns how long before the server's expiry a holder stops relying on its lease. That
// allows for late timers, and for clocks that run at slightly different rates.
func Margin(term time.Duration) time.Duration {
	return max(12*time.Millisecond, term/40)
}

// TermWithin returns the term to ask for if the holder must stop after left: ttl, or left plus
// twice the margin, so that the deadline does not come earlier. Durations may be the longest
// possible, so nothing is added that could overflow.
func TermWithin(ttl, left time.Duration) time.Duration {
	if slack := 2 * Margin(min(ttl, left)); left < ttl-slack {
		return max(0, left) + slack
	}
	return ttl
}

// Term returns how long to renew for: the TTL, or what MaxHold leaves of it.
func (a *Life) Term(now Moment) time.Duration {
	if a.MaxEnd == 0 {
		return a.TTL
	}
	return TermWithin(a.TTL, a.MaxEnd-now)
}
