package life

import (
	"cmp"
	"time"
)

// The leaves of an attempt, and what is due of it as time passes.

// OnLeave takes the outcome of a leave.
func (a *Life) OnLeave(r *Outcome, now Moment) (fx Effect) {
	if a.underWay > 0 {
		a.underWay--
	}
	if r.Copied || r.Code == Unanswered {
		fx = Ask // a lost reply may have carried grants to others
	}
	// The lease cannot have expired yet, and no earlier leave has given it back. (A place in the queue
	// is one that the attempt's own stray enter took, which such a leave would have refused.)
	sure := now < a.Deadline && (!a.resent && !r.Copied || r.Code == Queued) || a.Complete
	if r.Copied || r.Code == Unanswered {
		a.resent = true
	}
	if a.State != Leaving {
		return fx
	}
	switch r.Code {
	case NotSent, Unanswered, Refused, Foreign:
		return fx | a.unleft(r, now)
	case Held:
		if a.late && !a.taken {
			fx |= CameLate
		}
	}
	a.State, a.settled = Over, true
	if a.Told != WaitOn {
		return fx
	}
	fx |= Wake
	switch {
	case r.Code == Revoked:
		a.Told = TellRevoked
	case a.again:
		a.Told = TellAgain
	case r.Code == Held && r.TooFew:
		a.Told = TellNoAnswer
	case r.Code != Held && sure:
		a.Told = TellLost // before its holder let go
	default:
		a.Told = TellDone // an earlier leave may have given it back, or the time has
	}
	return fx
}

// unleft decides when a leave without an answer is sent again.
func (a *Life) unleft(r *Outcome, now Moment) Effect {
	a.leaves++
	switch r.Code {
	case Refused:
		a.refused = min(a.refused+1, MaxTries)
	case Foreign:
		// There is nothing to give back, unless a copy of the enter arrives after the foreign
		// value is gone.
		a.refused = min(a.refused+1, MaxTries)
		a.until, a.runs = min(a.gone(), now+VoidAfter), 0
	}
	a.Next = now + a.backoff(a.leaves)
	if a.Told != WaitOn {
		a.Next = now + 4*a.backoff(a.leaves)
	}
	if a.refused >= MaxTries {
		a.Next = now + refusedPause
	}
	gaveUp := r.Away || r.Code == Refused || r.Code == Foreign || a.leaves >= MaxTries && !a.again || now-a.Since > patience
	if a.Told == WaitOn && gaveUp {
		a.Told = TellNoAnswer
		return Wake
	}
	return 0
}

// gone returns the moment from which on nothing of the attempt can be left in Redis: a copy of
// an enter or a renewal that runs last gives a lease for a term from then on.
func (a *Life) gone() Moment {
	if a.runs == 0 {
		return a.until
	}
	return max(a.until, a.runs+a.TTL)
}

// A Duty is a call that is due.
type Duty uint8

const (
	Nothing Duty = iota
	ToRenew
	ToProbe // a renewal that is there to hear of a revocation, and changes nothing
	ToLeave
)

// Tick takes that time has passed. It returns the call that is due. While the last call of that
// kind is under way and not late, pending is the moment until which it is not repeated.
func (a *Life) Tick(now, pending Moment) (do Duty, fx Effect) {
	switch {
	case a.State == Holding && a.MaxEnd > 0 && now >= a.MaxEnd:
		a.State, a.Ending, a.Told, a.Next = Leaving, ByMaxHold, TellDone, now
		fx = HoldEnded
	case a.State == Holding:
		fx = a.notice(now)
	case a.State == Leaving && !a.attached && now >= a.gone() && (a.underWay > 0 || a.leaves > 0):
		// At least one leave was sent. Before that, an ask may have come so late, because the process
		// stood still, that a place is alive after this time.
		a.State = Over
		if a.Told == WaitOn {
			a.Told, fx = TellNoAnswer, Wake // no answer is never "held until the end"
		}
	}
	switch {
	case a.State == Holding && now >= a.renewAt-a.renewSlack():
		if pending > now {
			a.renewAt = pending
			return Nothing, fx
		}
		if do = ToRenew; a.probes && !a.Confirms {
			do = ToProbe
		}
		// If no answer comes, try again after a quarter of the time that is left.
		a.renewAt, a.renewedAt, a.probes = now+a.retryRenewal(now), now, false
		return do, fx
	case a.State == Leaving && !a.attached && now >= a.Next:
		if pending > now {
			a.Next = pending
			return Nothing, fx
		}
		a.resent = a.resent || a.underWay > 0 // the answer to the second may come first
		a.underWay++
		a.Next = now + 4*a.backoff(a.leaves+1)
		if a.refused >= MaxTries {
			a.Next = now + refusedPause
		}
		return ToLeave, fx
	}
	return Nothing, fx
}

// retryRenewal returns how long after a renewal the next one is sent if no answer comes.
func (a *Life) retryRenewal(now Moment) time.Duration {
	return min(max((a.end()-now)/4, 5*time.Millisecond), time.Second)
}

// Patience returns how long the answer to the call that is due may take before the call is late,
// and how long it may take at most, although the server still answers others.
func (a *Life) Patience(now Moment) (late, longest time.Duration) {
	if a.State == Leaving {
		return 4 * a.backoff(a.leaves+1), a.TTL
	}
	return a.retryRenewal(now), (min(a.end(), now+a.TTL) - now) / 2
}

// renewSlack returns how much earlier a renewal may be sent to share a round trip.
func (a *Life) renewSlack() time.Duration {
	return max(0, min(a.TTL/24, (a.renewAt-a.renewedAt)/4))
}

// Due returns when the next tick is due, and how much earlier it may come to share a round
// trip.
func (a *Life) Due() (at Moment, slack time.Duration) {
	switch a.State {
	case Holding:
		at, slack = a.renewAt, a.renewSlack()
		if end := min(a.end(), cmp.Or(a.MaxEnd, Never)); end < at {
			at, slack = end, 0
		}
		return at, slack
	case Leaving:
		if a.attached || a.Next == Never {
			return Never, 0
		}
		return min(a.Next, a.gone()), 0
	}
	return Never, 0
}

// backoff returns the pause after n calls without an answer.
func (a *Life) backoff(n uint16) time.Duration {
	d := 4 * time.Millisecond << min(n, 6)
	return d/2 + a.spread(d)
}

// spread returns a random duration below d; 0 without dice.
func (a *Life) spread(d time.Duration) time.Duration {
	if a.Dice == 0 || d <= 0 {
		return 0
	}
	a.Dice ^= a.Dice << 13
	a.Dice ^= a.Dice >> 17
	a.Dice ^= a.Dice << 5
	return time.Duration(uint64(d) * uint64(a.Dice) >> 32)
}
