package lease

import "time"

// The life of an attempt from its grant on.

// grant takes a grant. Its term is counted from the sending of the call that says so, because
// the server cannot have counted it from earlier.
func (a *life) grant(r *Result, sent, now moment) effect {
	a.until = max(a.until, now+r.Term)
	a.deadline = sent + r.Term - margin(r.Term)
	a.state, a.fails = held, 0
	switch {
	case r.TooFew:
		a.confirms = false
		return a.drop(tellNoAnswer)
	case a.deadline <= now:
		return a.giveBackLate(now)
	}
	a.plan(false, now)
	if a.confirms = a.confirms && !r.Confirmed; a.confirms {
		a.renewAt, a.since = now, now // an own renewal has the grant confirmed first
		return 0
	}
	if a.asks { // it may have been revoked meanwhile
		a.asks, a.renewAt, a.probes = false, now, true
	}
	return wake
}

// giveBackLate gives back a grant that came too late. A caller that waits is told "again" only
// when the leave is answered, because the answer may say that the attempt was revoked. One that
// does not wait might find the permits of this attempt taken, and take them for others'.
func (a *life) giveBackLate(now moment) effect {
	a.state, a.told, a.again, a.since, a.fails = leaving, waitOn, a.waits, now, 0
	if !a.waits {
		a.told = tellLate
	}
	return wake | late
}

// plan sets the next renewal to a third of the time that is left, less up to a tenth of that. A
// probe changes nothing, so after one the renewal is due when two thirds of the TTL are left, as
// before: hints may come all the time, and must not put it off.
func (a *life) plan(probed bool, now moment) {
	left := max(0, min(a.deadline-now, a.ttl))
	in := left / 3
	if probed {
		in = max(0, left-2*a.ttl/3)
	}
	a.renewAt = now + in - a.spread(in/10+1)
}

// notice ends a lease whose deadline has passed: that counts before every event but the answer
// to a renewal. Nothing is given back here, because the holder may need the margin to stop.
func (a *life) notice(now moment) effect {
	if a.state == held && now >= a.deadline {
		return a.lose(byDeadline, now)
	}
	return 0
}

// lose ends a lease that is gone, or may be. One that is idle has no holder that needs time to
// stop, so it is given back at once, in case the server still has it.
func (a *life) lose(why ending, now moment) effect {
	a.state, a.why = lost, why
	if a.idle {
		a.state, a.released, a.next, a.told = leaving, true, now, tellDone
	}
	if !a.taken {
		return wake
	}
	return ended
}

// onRenew takes the outcome of a renewal for term that was sent at the moment sent. A renewal
// has no time from which on it does nothing, so one without an answer may have run just now, or
// may run later.
func (a *life) onRenew(r *Result, term time.Duration, sent, now moment) effect {
	switch r.Code {
	case Granted:
		a.until = max(a.until, now+r.Term)
	case Unanswered:
		a.until = max(a.until, now+term)
	}
	if (r.Copied || r.Code == Unanswered) && term != probeTerm {
		a.runs = max(a.runs, sent+voidAfter) // a copy that runs late prolongs what is there then
	}
	if a.state == over && !a.settled && a.until > now {
		a.state, a.next = leaving, now // it prolonged the term of a lease that no leave has ended
	}
	if a.state != held {
		return 0
	}
	switch r.Code {
	case Granted:
		return a.renewed(r, term == probeTerm, sent, now)
	case Revoked:
		return a.lostUntaken(tellRevoked, byRevoker, now)
	case Gone:
		return a.lostUntaken(tellAgain, byServer, now)
	case Ended:
		return a.lose(byProtocol, now)
	case Foreign:
		return a.lostUntaken(tellNoAnswer, byForeign, now)
	}
	fx := a.notice(now)
	if a.state == held && a.confirms {
		a.fails++
		if a.renewAt = now + a.backoff(a.fails); r.Code == Refused || a.renewAt-a.since > patience {
			a.late = true
			return fx | a.drop(tellNoAnswer)
		}
	}
	return fx // the next try is planned, and the deadline stays
}

// renewed moves the deadline, unless too few replicas confirmed the renewal: a replica that
// takes over from the primary may never have received it. No renewal shortens a lease on the
// server, so an older answer with an earlier end is ignored.
func (a *life) renewed(r *Result, probed bool, sent, now moment) (fx effect) {
	switch {
	case !r.TooFew:
		a.deadline = max(a.deadline, sent+r.Term-margin(r.Term))
	case a.confirms:
		a.confirms = false
		return a.drop(tellNoAnswer)
	}
	if fx = a.notice(now); a.state != held {
		return fx
	}
	a.fails = 0
	a.plan(probed, now)
	if a.confirms {
		a.confirms = false
		return fx | wake
	}
	return fx
}

// lostUntaken ends a lease that is gone. A caller that has not got it is told v.
func (a *life) lostUntaken(v verdict, why ending, now moment) effect {
	if a.taken {
		return a.lose(why, now)
	}
	return a.drop(v)
}

// release gives the lease back for its holder, and returns what it was: held, lost (or ended by
// MaxHold), or over, if it was given back before. If it was held, its leave counts as sent. On
// a handle that is closed, a lost lease ends by itself, because the schedule may have stopped.
func (a *life) release(now moment, closed bool) (was state, fx effect) {
	fx = a.notice(now)
	switch {
	case a.released || a.why == byClose:
		return over, fx
	case a.state == held:
		a.state, a.why, a.released = leaving, byHolder, true
		a.since, a.next, a.leaves, a.underWay = now, never, 0, 1
		return held, ended
	case a.state == lost && !closed:
		a.state, a.next, a.told = leaving, now, tellDone
	}
	a.released = true
	return lost, fx
}

// giveBack gives the lease back with nobody who waits for the answer.
func (a *life) giveBack(why ending, now moment) (fx effect) {
	fx = a.notice(now)
	switch {
	case a.state == held && a.taken:
		a.state, a.why, a.released, a.next = leaving, why, why == byHolder, now
		a.told = tellDone
		return ended
	case a.state == lost && why == byHolder:
		a.state, a.released, a.next, a.told = leaving, true, now, tellDone
	}
	return fx
}

// rest makes a lease idle: its holder has let go of it, and it is kept and renewed for the next
// one. It reports whether the lease is held.
func (a *life) rest(now moment) bool {
	a.idle = a.state == held && a.taken && now < a.deadline
	return a.idle
}

// resume gives an idle lease to a holder. It reports whether the lease is held.
func (a *life) resume(now moment) bool {
	if a.state != held || now >= a.deadline {
		return false
	}
	a.idle = false
	return true
}

// end ends a lease that another call than a leave has given back.
func (a *life) end(now moment) effect {
	fx := a.giveBack(byHolder, now)
	if a.state == leaving {
		a.state, a.settled = over, true
	}
	return fx
}

// onLeave takes the outcome of a leave.
func (a *life) onLeave(r *Result, now moment) (fx effect) {
	if a.underWay > 0 {
		a.underWay--
	}
	if r.Copied || r.Code == Unanswered {
		fx = ask // a lost reply may have carried grants to others
	}
	sure := !a.resent && !r.Copied && now < a.deadline || a.complete
	if r.Copied || r.Code == Unanswered {
		a.resent = true
	}
	if a.state != leaving {
		return fx
	}
	switch r.Code {
	case NotSent, Unanswered, Refused, Foreign:
		return fx | a.unleft(r, now)
	case Held:
		if a.late && !a.taken {
			fx |= late
		}
	}
	a.state, a.settled = over, true
	if a.told != waitOn {
		return fx
	}
	fx |= wake
	switch {
	case r.Code == Revoked:
		a.told = tellRevoked
	case a.again:
		a.told = tellAgain
	case r.Code == Held && r.TooFew:
		a.told = tellNoAnswer
	case r.Code != Held && (sure || r.Code == Queued):
		// The deadline had not passed when the holder let go. If this was the only leave, and
		// it was answered before the lease can have expired, the lease was lost before. (A
		// place in the queue is one that the attempt's own stray enter took after a FLUSH.)
		a.told = tellLost
	default:
		a.told = tellDone // an earlier leave may have given it back, or the time has
	}
	return fx
}

// unleft decides when a leave without an answer is sent again.
func (a *life) unleft(r *Result, now moment) effect {
	a.leaves++
	switch r.Code {
	case Refused:
		a.refused = min(a.refused+1, maxTries)
	case Foreign:
		// There is nothing to give back, unless a copy of the enter arrives after the foreign
		// value is gone.
		a.refused = min(a.refused+1, maxTries)
		a.until, a.runs = min(a.gone(), now+voidAfter), 0
	}
	a.next = now + a.backoff(a.leaves)
	if a.told != waitOn {
		a.next = now + 4*a.backoff(a.leaves)
	}
	if a.refused >= maxTries {
		a.next = now + refusedPause
	}
	gaveUp := r.Away || r.Code == Refused || r.Code == Foreign || a.leaves >= maxTries && !a.again || now-a.since > patience
	if a.told == waitOn && gaveUp {
		a.told = tellNoAnswer
		return wake
	}
	return 0
}

// gone returns the moment from which on nothing of the attempt can be left in Redis: a copy of
// an enter or a renewal that runs last gives a lease for a term from then on.
func (a *life) gone() moment {
	if a.runs == 0 {
		return a.until
	}
	return max(a.until, a.runs+a.ttl)
}

// A duty is a call that is due.
type duty uint8

const (
	nothing duty = iota
	toRenew
	toProbe // a renewal that is there to hear of a revocation, and changes nothing
	toLeave
)

// tick takes that time has passed. It returns the call that is due. While the last call of that
// kind is under way and not late, pending is the moment until which it is not repeated.
func (a *life) tick(now, pending moment) (do duty, fx effect) {
	switch {
	case a.state == held && a.maxEnd > 0 && now >= a.maxEnd:
		a.state, a.why, a.told, a.next = leaving, byMaxHold, tellDone, now
		fx = ended
	case a.state == held:
		fx = a.notice(now)
	case a.state == leaving && !a.attached && now >= a.gone():
		a.state = over
		if a.told == waitOn {
			a.told, fx = tellNoAnswer, wake // no answer is never "held until the end"
		}
	}
	switch {
	case a.state == held && now >= a.renewAt-a.renewSlack():
		if pending > now {
			a.renewAt = pending
			return nothing, fx
		}
		if do = toRenew; a.probes {
			do = toProbe
		}
		// If no answer comes, try again after a quarter of the time that is left.
		a.renewAt, a.renewedAt, a.probes = now+a.retryRenewal(now), now, false
		return do, fx
	case a.state == leaving && !a.attached && now >= a.next:
		if pending > now {
			a.next = pending
			return nothing, fx
		}
		a.resent = a.resent || a.underWay > 0 // the answer to the second may come first
		a.underWay++
		a.next = now + 4*a.backoff(a.leaves+1)
		if a.refused >= maxTries {
			a.next = now + refusedPause
		}
		return toLeave, fx
	}
	return nothing, fx
}

// retryRenewal returns how long after a renewal the next one is sent if no answer comes.
func (a *life) retryRenewal(now moment) time.Duration {
	return min(max((a.deadline-now)/4, 5*time.Millisecond), time.Second)
}

// renewSlack returns how much earlier a renewal may be sent to share a round trip.
func (a *life) renewSlack() time.Duration {
	return max(0, min(a.ttl/24, (a.renewAt-a.renewedAt)/4))
}

// never is the moment of something that is not due.
const never moment = 1<<63 - 1

// due returns when the next tick is due, and how much earlier it may come to share a round
// trip.
func (a *life) due() (at moment, slack time.Duration) {
	switch a.state {
	case held:
		at, slack = a.renewAt, a.renewSlack()
		if end := min(a.deadline, cmpOr(a.maxEnd, never)); end < at {
			at, slack = end, 0
		}
		return at, slack
	case leaving:
		if a.attached || a.next == never {
			return never, 0
		}
		return min(a.next, a.gone()), 0
	}
	return never, 0
}

// cmpOr returns at, or other if at is 0.
func cmpOr(at, other moment) moment {
	if at == 0 {
		return other
	}
	return at
}
