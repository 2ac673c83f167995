package life

// The life of an attempt until its caller has a lease or is told something else.

// New returns the life of an attempt whose caller waits for it.
func New(o Options) Life { return Life{Options: o, attached: true} }

// A Look is what the caller of an attempt has to do.
type Look uint8

const (
	LookWait   Look = iota // sleep until it is woken
	LookPause              // sleep until next, too
	LookSend               // send the enter
	LookDetach             // withdraw the enter, say so, and look again
	LookTake               // the lease is there
	LookTold               // the attempt has ended: see told
)

// Look says what its caller has to do. Between a wake and this look come ctx, Close, a
// revocation and the deadline, so only this look counts.
func (a *Life) Look(now Moment) (do Look, fx Effect) {
	fx = a.notice(now) &^ Wake
	switch a.State {
	case Entering:
		switch {
		case a.Flying:
			return LookWait, fx
		case now < a.Next:
			return LookPause, fx
		}
		return LookSend, fx
	case Waiting:
		return LookWait, fx
	case Holding:
		switch {
		case a.taken || a.Confirms:
			return LookWait, fx
		case a.Flying && a.attached:
			return LookDetach, fx
		}
		return LookTake, fx
	case Lost:
		if !a.taken { // between its grant and this look its time was over
			fx |= a.giveBackLate(now) &^ Wake
		}
	}
	switch {
	case a.attached:
		return LookDetach, fx
	case a.Told == WaitOn:
		return LookWait, fx
	}
	return LookTold, fx
}

// Send notes that an enter is sent now, and reports whether it is still wanted.
func (a *Life) Send() bool {
	if a.State != Entering || a.Flying {
		return false
	}
	a.Flying = true
	a.enters++
	return true
}

// Take gives the lease to the caller.
func (a *Life) Take(now Moment) {
	a.taken, a.attached, a.Told = true, false, WaitOn
	if a.MaxHold > 0 && a.MaxHold < Never-now {
		a.MaxEnd = now + a.MaxHold
	}
}

// Detach notes that the caller waits no longer for its enter. If the enter could be withdrawn,
// its outcome came before this. Otherwise it may run until void.
func (a *Life) Detach(void, now Moment) {
	a.attached = false
	if a.Flying {
		a.runs = max(a.runs, void)
	}
	switch {
	case a.State != Leaving:
	case a.enters == 0, a.runs == 0 && (a.Told == TellAnswer || a.Told == TellAgain || a.Told == TellRevoked):
		// No enter ran, or by Redis' answer nothing is left and no copy can come.
		a.State, a.settled = Over, true
	default:
		// Its place may be granted until it no longer counts as alive.
		a.Next, a.until = now, max(a.until, now+max(a.TTL, VoidAfter))
	}
}

// Withdraw notes that the enter under way was withdrawn: it has not run, and never will.
func (a *Life) Withdraw() {
	if a.Flying {
		a.Flying = false
		a.enters--
	}
}

// drop ends the attempt before its caller has a lease.
func (a *Life) drop(v Verdict) Effect {
	a.State, a.Told = Leaving, v
	return Wake
}

// Leave ends the attempt because its caller waits no longer.
func (a *Life) Leave(now Moment) Effect {
	a.notice(now)
	if a.State != Leaving && a.State != Over { // else it was said that its grant came late
		a.State, a.late = Leaving, true
	}
	a.Next = now
	a.again, a.Told = false, TellNoAnswer // the caller itself knows why
	return 0
}

// OnEnter takes the outcome of an enter that was sent at the moment sent.
func (a *Life) OnEnter(r *Outcome, sent, now Moment) (fx Effect) {
	switch {
	case !a.Flying: // it was withdrawn
		return 0
	case r.Copied || r.Code == Unanswered:
		a.runs = max(a.runs, sent+VoidAfter)
		fx = Ask // a lost reply may have carried grants to others
	case r.Code == NotSent:
		a.enters--
	case r.Code == Granted:
		a.until = max(a.until, now+r.Term)
	}
	a.Flying = false
	switch {
	case a.State == Holding && r.Code == Revoked:
		return fx | a.lose(ByRevoker, now)
	case a.State != Entering:
		return fx // the leave is repeated for as long as this enter can have an effect
	}
	switch r.Code {
	case Granted:
		return fx | a.grant(r, sent, now)
	case Queued:
		a.State, a.Fails = Waiting, 0
		if a.asks || fx != 0 {
			fx |= Ask
		}
		a.asks = false
		return fx | Wake
	case Void:
		// The estimate of the server's clock was off. The reply has corrected it.
		if a.voids++; a.voids >= MaxRestarts {
			return fx | a.drop(TellLate)
		}
		a.Next, a.Fails = now, 0
		return fx | Wake
	case GivenUp:
		// Somebody deleted keys, or a copy was given up. A new attempt has a new owner id, so
		// the scripts do not mistake it for this one.
		return fx | a.drop(TellAgain)
	case Revoked:
		return fx | a.drop(TellRevoked)
	case Refused:
		return fx | a.drop(TellNoAnswer)
	case NotSent, Unanswered:
		return fx | a.Unanswered(r, sent, now)
	}
	return fx | a.drop(TellAnswer)
}

// Unanswered decides whether an enter without an answer is sent again. Patience counts from the
// sending of the first one.
func (a *Life) Unanswered(r *Outcome, sent, now Moment) Effect {
	if a.State != Entering {
		return 0
	}
	if a.Fails++; a.Fails == 1 {
		a.Since = sent
	}
	pause := a.backoff(a.Fails)
	if !a.Waits && a.Fails >= MaxTries || r.Away && (!a.Waits || a.FailsFast) || now-a.Since+pause > patience {
		return a.drop(TellNoAnswer)
	}
	a.Next = now + pause
	return Wake
}

// OnNews takes what the reply to another call than its own enter says of a waiting attempt: the
// ask of its group (asked), or a call that granted to it. sent is when that call was sent.
func (a *Life) OnNews(r *Outcome, asked bool, sent, now Moment) Effect {
	if a.State != Waiting && (a.State != Entering || asked) {
		return 0 // it left; its leave is under way
	}
	switch r.Code {
	case Granted:
		return a.grant(r, sent, now)
	case Gone: // enter again, with the same owner id and ticket
		a.State, a.Next = Entering, now
		return Wake
	case Queued:
		return 0
	case Revoked:
		return a.drop(TellRevoked)
	case Refused, Unanswered:
		return a.drop(TellNoAnswer)
	}
	return a.drop(TellAnswer)
}

// OnHint takes a hint that it was revoked, or a message that can not be believed. Every client
// that may publish on the inbox can forge one, so it only brings a call forward.
func (a *Life) OnHint(now Moment) Effect {
	switch a.State {
	case Entering:
		a.asks = true
	case Waiting:
		return Ask
	case Holding:
		if at := max(now, a.renewedAt+hintPause); at < a.renewAt {
			a.renewAt, a.probes = at, true
		}
	}
	return 0
}
