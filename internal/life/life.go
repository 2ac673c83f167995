// Package life is the life of an attempt: a pure state machine, without goroutine, clock, lock
// or call. Each event is a method of [Life]. It takes the present moment and returns what is to
// be done. The driver (internal/lease) has the rest, and knows no transitions. [Asking] is a
// second small machine: when a handle asks what became of its waiters.
//
//	event             entering              waiting          holding           lost     leaving
//	enter's reply     holding, waiting,     –                revoked: lost     –        accounted for
//	                  over, or enter again
//	ask's reply       –                     holding, over,   revoked: lost     –        –
//	                                        entering
//	another's reply,  holding, or late:     same             –                 –        –
//	message           leaving
//	hint              ask once it waits     ask              renew sooner      –        –
//	renewal's reply   –                     –                longer, or lost   –        leaves longer
//	caller leaves     leaving               leaving          leaving, unless   –        –
//	                                                         the caller has it
//	Release           –                     –                leaving           leaving  tells why
//	Close             (by its caller)       (by its caller)  leaving           –        –
//	leave's reply     –                     –                –                 –        over, or again
//	time              enter again           (Asking)         renew, lost,      –        leave again, over
//	                                                         leaving (MaxHold)
//
// The outcome of every enter is accounted for in every state: while a copy of one may run, the
// leave carries the time until when, and is repeated for a term after that.
//
// The explorer (explorer_test.go) walks the orders of events.
package life

import "time"

// A Life is the state of one attempt, from before its first enter until nothing of it can be
// left in Redis. Its driver reads the exported fields, and sets none but Complete.
type Life struct {
	Options

	State    State
	Ending   Ending
	Told     Verdict // for its caller; or for its releaser, once the lease was taken
	Flying   bool    // an enter is under way
	Released bool    // the holder knows that it is over
	Complete bool    // its leave stores something only if the lease is held
	Idle     bool    // it is kept, and nobody uses it

	attached bool  // its caller has not yet said that it waits no longer for its enter
	taken    bool  // its caller has the lease
	asks     bool  // a hint came: the group is to ask once it waits, or a lease to renew
	again    bool  // a new attempt is to follow, once the leave says that it was not revoked
	late     bool  // a leave that finds a lease finds a grant that came too late
	probes   bool  // the next renewal is there to hear of a revocation, and changes nothing
	resent   bool  // an earlier leave may have run
	settled  bool  // nothing of it is left: the leave was answered, or none was needed
	underWay uint8 // leaves without an outcome
	refused  uint8 // answers that refused the leave
	voids    uint8 // enters that came too late

	Fails  uint16 // consecutive calls without an answer
	enters uint16 // that may have reached the server
	leaves uint16 // without an answer

	Since    Moment // when the first call without an answer was sent, or when the release began
	Next     Moment // when the next enter or leave may be sent
	Deadline Moment // until when the lease is surely held
	MaxEnd   Moment // when MaxHold is over; 0: never

	runs      Moment // until when a copy of an enter, or of a renewal, may run; 0: none can
	until     Moment // until when Redis may keep a lease
	renewAt   Moment
	renewedAt Moment // when the last renewal was sent
}

// Options say what an attempt asks for.
type Options struct {
	TTL       time.Duration
	MaxHold   time.Duration // 0: no bound
	Waits     bool          // it takes a place in the queue
	FailsFast bool          // no answer from a server that is away ends it
	Confirms  bool          // a renewal is to confirm the grant before the caller gets it, as replicas do
	Dice      uint32        // spreads renewals; 0: they are not spread
}

// A Moment is the time since an hour before the handle was made, by the monotonic clock. So 0 is
// no moment of its life.
type Moment = time.Duration

// Never is the moment of something that is not due.
const Never Moment = 1<<63 - 1

// A State is where an attempt is.
type State uint8

const (
	Entering State = iota // an enter is to be sent, is under way, or was not answered
	Waiting               // it has a place in the queue; its group asks for it
	Holding               // it has a lease
	Lost                  // the lease has ended, and nobody has given it back
	Leaving               // a leave is to be sent, is under way, or was not answered
	Over                  // nothing of it is left, and nothing can come
)

// A Code is what an answer says of an attempt.
type Code uint8

const (
	Gone       Code = iota // it neither holds nor waits
	Granted                // it holds a lease
	Queued                 // it waits; of a leave: it waited
	Busy                   // nothing is free, and it does not wait
	TooMany                // it asks for more than the limit
	QueueFull              // MaxWaiters are waiting already
	Void                   // the enter arrived after the time from which on it does nothing
	GivenUp                // a leave of the same attempt came first
	Revoked                // it was revoked
	Answered               // there is no lease, but an answer
	Held                   // of a leave: it held the lease until then
	Ended                  // of a renewal: the renewal has given the lease back
	NotSent                // the call has not run, and never will
	Unanswered             // no answer came; the call may run
	Refused                // the server has refused the call
	Foreign                // a foreign value has the place of a key, so the call did nothing
)

// An Outcome is what an answer says of an attempt, as far as its life depends on it, or that
// there is none.
type Outcome struct {
	Code      Code
	Copied    bool          // another copy of the call may still run
	TooFew    bool          // too few replicas confirmed the call
	Confirmed bool          // as many as the handle wants did
	Away      bool          // the server is known not to answer
	Term      time.Duration // that is left of its lease
	Trip      time.Duration // that the last call of a waiter took
}

// An Ending is why a lease ended.
type Ending uint8

const (
	NotEnded   Ending = iota
	ByHolder          // it was given back
	ByClose           // Close gave it back
	ByMaxHold         // MaxHold was over
	ByDeadline        // no renewal was answered in time
	ByServer          // the server does not know it any more
	ByRevoker         // it was revoked
	ByProtocol        // its renewal gave it back on purpose: Ended
	ByForeign         // a foreign value has its place
)

// A Verdict is what a caller is told that waits for an attempt, or for its leave.
type Verdict uint8

const (
	WaitOn       Verdict = iota
	TellAnswer           // of the enter, in the reply: busy, full, too many, or an answer without a lease
	TellAgain            // begin a new attempt, with the same ticket
	TellLate             // the reply came too late
	TellRevoked          // it was revoked
	TellNoAnswer         // no answer in time, or one that refused the call
	TellDone             // the lease was held until it was given back
	TellLost             // the lease had ended before it was given back
)

// An Effect is something that the driver has to do after a step.
type Effect uint8

const (
	Wake      Effect = 1 << iota // its caller or releaser looks
	Ask                          // the group asks soon
	HoldEnded                    // the lease has ended for its holder
	CameLate                     // a grant came too late, and is given back
)

const (
	// VoidAfter is how long an enter may take to reach the server. A later copy of it does
	// nothing.
	VoidAfter = 5 * time.Second
	// patience is how long a waiter keeps trying while the server does not answer its enter,
	// and a releaser while it does not answer the leave. A request that does not wait is tried
	// at most MaxTries times, and so is a leave before its releaser is told. It ends before the
	// tombstone of a revocation does, so no later enter is let in.
	patience = 3 * time.Second
	MaxTries = 3
	// briefTrips is how many times as long as a grant took to be heard, or a call took, its term has to last,
	// or it is renewed before its caller gets it: under load the lease might be lost.
	briefTrips = 4
	// MaxRestarts bounds how often one Acquire starts again because a reply came too late to
	// be of use.
	MaxRestarts = 4
	// hintPause is the shortest time between two renewals that hints cause, and between two
	// asks. Replayed hints cost one call every 50 ms, and no more.
	hintPause = 50 * time.Millisecond
	// ProbeTerm is the term of a renewal that a hint causes. It is over before the lease is, so
	// the renewal changes nothing: no write, and listings do not see it.
	ProbeTerm = time.Millisecond
	// refusedPause is the pause after a leave that the server refused MaxTries times or more.
	refusedPause = 500 * time.Millisecond
)
