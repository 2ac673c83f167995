package lease

import (
	"time"
)

// A life is the state of one attempt, from before its first enter until nothing of it can be
// left in Redis. It is a pure state machine: no goroutine, clock, lock or call. Each event is a
// method. It takes the present moment and returns what is to be done. The driver (attempt.go)
// has the rest. explorer_test.go walks the orders of events.
//
//	event             entering              queued           held              lost     leaving
//	enter's reply     held, queued, over,   –                revoked: lost     –        accounted for
//	                  or enter again
//	ask's reply       –                     held, entering,  revoked: lost     –        –
//	                                        over
//	another's reply,  held, or late:        same             –                 –        –
//	message           leaving
//	hint              ask once queued       ask              renew sooner      –        –
//	renewal's reply   –                     –                longer, or lost   –        leaves longer
//	caller leaves     leaving               leaving          leaving, unless   –        –
//	                                                         the caller has it
//	Release           –                     –                leaving           leaving  tells why
//	Close             (by its caller)       (by its caller)  leaving           –        –
//	leave's reply     –                     –                –                 –        over, or again
//	time              enter again           (group)          renew, lost,      –        leave again, over
//	                                                         leaving (MaxHold)
//
// The outcome of every enter is accounted for in every state: while a copy of one may run, the
// leave carries the time until when, and is repeated for a term after that.
type life struct {
	// What the attempt asks for; set once.
	ttl       time.Duration
	maxHold   time.Duration // 0: no bound
	waits     bool          // it takes a place in the queue
	failsFast bool          // no answer from a server that is away ends it
	confirms  bool          // replicas confirm grants
	dice      uint32        // spreads renewals; 0: they are not spread

	state state
	why   ending
	told  verdict // for its caller; or for its releaser, once the lease was taken

	attached bool   // its caller has not yet said that it waits no longer for its enter
	taken    bool   // its caller has the lease
	released bool   // the holder knows that it is over
	flying   bool   // an enter is under way
	asks     bool   // a hint came: the group is to ask once it is queued, or a lease to renew
	again    bool   // a new attempt is to follow, once the leave says that it was not revoked
	late     bool   // a leave that finds a lease finds a grant that came too late
	probes   bool   // the next renewal is there to hear of a revocation, and changes nothing
	resent   bool   // an earlier leave may have run
	complete bool   // its leave stores something only if the lease is held
	idle     bool   // it is kept, and nobody uses it
	settled  bool   // nothing of it is left: the leave was answered, or none was needed
	underWay uint8  // leaves without an outcome
	refused  uint8  // answers that refused the leave
	voids    uint8  // enters that came too late
	enters   uint16 // that may have reached the server
	fails    uint16 // consecutive calls without an answer
	leaves   uint16 // without an answer

	since     moment // when the first call without an answer was sent, or when the release began
	next      moment // when the next enter or leave may be sent
	runs      moment // until when a copy of an enter, or of a renewal, may run; 0: none can
	until     moment // until when Redis may keep a lease
	deadline  moment // until when the lease is surely held
	renewAt   moment
	renewedAt moment // when the last renewal was sent
	maxEnd    moment // when MaxHold is over; 0: never
}

// A moment is the time since an hour before the handle was made, by the monotonic clock. So 0 is
// no moment of its life.
type moment = time.Duration

type state uint8

const (
	entering state = iota // an enter is to be sent, is under way, or was not answered
	queued                // it has a place in the queue; its group asks for it
	held                  // it has a lease
	lost                  // the lease has ended, and nobody has given it back
	leaving               // a leave is to be sent, is under way, or was not answered
	over                  // nothing of it is left, and nothing can come
)

// An ending is why a lease ended.
type ending uint8

const (
	notEnded   ending = iota
	byHolder          // it was given back
	byClose           // Close gave it back
	byMaxHold         // MaxHold was over
	byDeadline        // no renewal was answered in time
	byServer          // the server does not know it any more
	byRevoker         // it was revoked
	byProtocol        // its renewal gave it back on purpose: see Reply.Ended
	byForeign         // a foreign value has its place
)

// A verdict is what a caller is told that waits for an attempt, or for its leave.
type verdict uint8

const (
	waitOn       verdict = iota
	tellAnswer           // of the enter, in the reply: busy, full, too many, or an answer without a lease
	tellAgain            // begin a new attempt, with the same ticket
	tellLate             // the reply came too late
	tellRevoked          // it was revoked
	tellNoAnswer         // no answer in time, or one that refused the call
	tellDone             // the lease was held until it was given back
	tellLost             // the lease had ended before it was given back
)

// An effect is something that the driver has to do after a step.
type effect uint8

const (
	wake  effect = 1 << iota // its caller or releaser looks
	ask                      // the group asks soon
	ended                    // the lease has ended for its holder
	late                     // a grant came too late, and is given back
)

const (
	// voidAfter is how long an enter may take to reach the server. A later copy of it does
	// nothing.
	voidAfter = 5 * time.Second
	// patience is how long a waiter keeps trying while the server does not answer its enter,
	// and a releaser while it does not answer the leave. A request that does not wait is tried
	// at most maxTries times, and so is a leave before its releaser is told. It ends before the
	// tombstone of a revocation does, so no later enter is let in.
	patience = 3 * time.Second
	maxTries = 3
	// maxRestarts bounds how often one Acquire starts again because a reply came too late to
	// be of use.
	maxRestarts = 4
	// hintPause is the shortest time between two renewals that hints cause. Replayed hints cost
	// one call every 50 ms, and no more.
	hintPause = 50 * time.Millisecond
	// probeTerm is the term of a renewal that a hint causes. It is over before the lease is, so
	// the renewal changes nothing: no write, and listings do not see it.
	probeTerm = time.Millisecond
	// refusedPause is the pause after a leave that the server refused maxTries times or more.
	refusedPause = 500 * time.Millisecond
)

// backoff returns the pause after n calls without an answer.
func (a *life) backoff(n uint16) time.Duration {
	d := 4 * time.Millisecond << min(n, 6)
	return d/2 + a.spread(d)
}

// spread returns a random duration below d; 0 without dice.
func (a *life) spread(d time.Duration) time.Duration {
	if a.dice == 0 || d <= 0 {
		return 0
	}
	a.dice ^= a.dice << 13
	a.dice ^= a.dice >> 17
	a.dice ^= a.dice << 5
	return time.Duration(uint64(d) * uint64(a.dice) >> 32)
}

// A look is what the caller of an attempt has to do.
type look uint8

const (
	lookWait   look = iota // sleep until it is woken
	lookPause              // sleep until next, too
	lookSend               // send the enter
	lookDetach             // withdraw the enter, say so, and look again
	lookTake               // the lease is there
	lookTold               // the attempt has ended: see told
)

// look says what its caller has to do. Between a wake and this look come ctx, Close, a
// revocation and the deadline, so only this look counts.
func (a *life) look(now moment) (do look, fx effect) {
	fx = a.notice(now) &^ wake
	switch a.state {
	case entering:
		switch {
		case a.flying:
			return lookWait, fx
		case now < a.next:
			return lookPause, fx
		}
		return lookSend, fx
	case queued:
		return lookWait, fx
	case held:
		switch {
		case a.taken || a.confirms:
			return lookWait, fx
		case a.flying && a.attached:
			return lookDetach, fx
		}
		return lookTake, fx
	case lost:
		if !a.taken { // between its grant and this look its time was over
			fx |= a.giveBackLate(now) &^ wake
		}
	}
	switch {
	case a.attached:
		return lookDetach, fx
	case a.told == waitOn:
		return lookWait, fx
	}
	return lookTold, fx
}

// send notes that an enter is sent now, and reports whether it is still wanted.
func (a *life) send() bool {
	if a.state != entering || a.flying {
		return false
	}
	a.flying = true
	a.enters++
	return true
}

// take gives the lease to the caller.
func (a *life) take(now moment) {
	a.taken, a.attached, a.told = true, false, waitOn
	if a.maxHold > 0 && a.maxHold < never-now {
		a.maxEnd = now + a.maxHold
	}
}

// detach notes that the caller waits no longer for its enter. If the enter could be withdrawn,
// its outcome came before this. Otherwise it may run until void.
func (a *life) detach(void, now moment) {
	a.attached = false
	if a.flying {
		a.runs = max(a.runs, void)
	}
	switch {
	case a.state != leaving:
	case a.enters == 0, a.runs == 0 && (a.told == tellAnswer || a.told == tellAgain || a.told == tellRevoked):
		// No enter ran, or by Redis' answer nothing is left and no copy can come.
		a.state, a.settled = over, true
	default:
		// Its place may be granted until it no longer counts as alive.
		a.next, a.until = now, max(a.until, now+max(a.ttl, voidAfter))
	}
}

// withdraw notes that the enter under way was withdrawn: it has not run, and never will.
func (a *life) withdraw() {
	if a.flying {
		a.flying = false
		a.enters--
	}
}

// drop ends the attempt before its caller has a lease.
func (a *life) drop(v verdict) effect {
	a.state, a.told = leaving, v
	return wake
}

// leave ends the attempt because its caller waits no longer.
func (a *life) leave(now moment) effect {
	a.notice(now)
	if a.state != leaving && a.state != over { // else it was said that its grant came late
		a.state, a.late = leaving, true
	}
	a.next = now
	a.again, a.told = false, tellNoAnswer // the caller itself knows why
	return 0
}

// onEnter takes the outcome of an enter that was sent at the moment sent.
func (a *life) onEnter(r *Result, sent, now moment) (fx effect) {
	switch {
	case !a.flying: // it was withdrawn
		return 0
	case r.Copied || r.Code == Unanswered:
		a.runs = max(a.runs, sent+voidAfter)
		fx = ask // a lost reply may have carried grants to others
	case r.Code == NotSent:
		a.enters--
	case r.Code == Granted:
		a.until = max(a.until, now+r.Term)
	}
	a.flying = false
	switch {
	case a.state == held && r.Code == Revoked:
		return fx | a.lose(byRevoker, now)
	case a.state != entering:
		return fx // the leave is repeated for as long as this enter can have an effect
	}
	switch r.Code {
	case Granted:
		return fx | a.grant(r, sent, now)
	case Queued:
		a.state, a.fails = queued, 0
		if a.asks || fx != 0 {
			fx |= ask
		}
		a.asks = false
		return fx | wake
	case Void:
		// The estimate of the server's clock was off. The reply has corrected it.
		if a.voids++; a.voids >= maxRestarts {
			return fx | a.drop(tellLate)
		}
		a.next, a.fails = now, 0
		return fx | wake
	case GivenUp:
		// Somebody deleted keys, or a copy was given up. A new attempt has a new owner id, so
		// the scripts do not mistake it for this one.
		return fx | a.drop(tellAgain)
	case Revoked:
		return fx | a.drop(tellRevoked)
	case Refused:
		return fx | a.drop(tellNoAnswer)
	case NotSent, Unanswered:
		return fx | a.unanswered(r, sent, now)
	}
	return fx | a.drop(tellAnswer)
}

// unanswered decides whether an enter without an answer is sent again. Patience counts from the
// sending of the first one.
func (a *life) unanswered(r *Result, sent, now moment) effect {
	if a.state != entering {
		return 0
	}
	if a.fails++; a.fails == 1 {
		a.since = sent
	}
	pause := a.backoff(a.fails)
	if !a.waits && a.fails >= maxTries || r.Away && (!a.waits || a.failsFast) || now-a.since+pause > patience {
		return a.drop(tellNoAnswer)
	}
	a.next = now + pause
	return wake
}

// onNews takes what the reply to another call than its own enter says of a waiting attempt: the
// ask of its group (asked), or a call that granted to it. sent is when that call was sent.
func (a *life) onNews(r *Result, asked bool, sent, now moment) effect {
	if a.state != queued && (a.state != entering || asked) {
		return 0 // it left; its leave is under way
	}
	switch r.Code {
	case Granted:
		return a.grant(r, sent, now)
	case Gone: // enter again, with the same owner id and ticket
		a.state, a.next = entering, now
		return wake
	case Queued:
		return 0
	case Revoked:
		return a.drop(tellRevoked)
	case Refused, Unanswered:
		return a.drop(tellNoAnswer)
	}
	return a.drop(tellAnswer)
}

// onHint takes a hint that it was revoked, or a message that can not be believed. Every client
// that may publish on the inbox can forge one, so it only brings a call forward.
func (a *life) onHint(now moment) effect {
	switch a.state {
	case entering:
		a.asks = true
	case queued:
		return ask
	case held:
		if at := max(now, a.renewedAt+hintPause); at < a.renewAt {
			a.renewAt, a.probes = at, true
		}
	}
	return 0
}
