package life

import "time"

// An Asking decides when a handle asks what became of its waiters in one queue. It is a pure
// state machine, as a Life is.
type Asking struct {
	asked    Moment // when the last sign of life was sent
	sent     Moment // when the last call was sent that told the state of the queue
	got      Moment // when its reply came
	firstEnd Moment // when the first lease ends, if it is not renewed; 0: no lease is held
	hinted   Moment // when to ask because of a hint; 0: no hint has come since asked
	Fails    int    // consecutive asks without an answer
	since    Moment // when the first of them failed
}

const (
	// AskEvery is the interval at which waiters give a sign of life. It is shorter than the
	// first term of a grant to a waiter (2 s, PROBATION in the scripts), so that a waiter that
	// missed its message asks in time. That term is shorter than the time for which a waiter
	// keeps its place without a sign of life (4.5 s, ALIVE in the scripts).
	AskEvery = 1500 * time.Millisecond
	// askPatience is how long waiters put up with a server that does not answer. Their tickets
	// keep their places through a failover of that length, and no longer.
	askPatience = 10 * time.Second
	// minAskPause is the shortest time between two asks if the second is due because a lease
	// ends.
	minAskPause = 20 * time.Millisecond
	// Silence is how long a call without an answer does not yet mean that Redis has fallen
	// silent.
	Silence = time.Second
)

// Alive notes that the enter of the first waiter was sent at the moment at: it was a sign of
// life.
func (g *Asking) Alive(at Moment) { g.asked = at }

// Asks notes that an ask is sent at the moment at.
func (g *Asking) Asks(at Moment) { g.asked, g.hinted = at, 0 }

// Answered notes that the reply to an ask has come, which was sent at the moment sent: its wait in the
// queue of the server does not count.
func (g *Asking) Answered(sent Moment) { g.asked = max(g.asked, sent) }

// Heard notes a reply that tells the state of the queue. That may be the reply to a newcomer, which
// is no sign of life of the others.
func (g *Asking) Heard(sent, got Moment, earliest time.Duration) {
	g.sent, g.got, g.Fails, g.firstEnd = sent, got, 0, 0
	if earliest > 0 {
		g.firstEnd = got + earliest + 2*time.Millisecond
	}
}

// Trip returns how long the last call took that told the state of the queue.
func (g *Asking) Trip() time.Duration { return g.got - g.sent }

// Failed notes an ask without an answer. It reports whether the waiters give up.
func (g *Asking) Failed(refused bool, now Moment) (giveUp bool) {
	if g.Fails++; g.Fails == 1 {
		g.since = now
	}
	return refused || now-g.since > askPatience
}

// Silent reports whether the server does not answer any more: its last answer is older than
// the usual interval of asks, and asks that were sent since then have had no answer for a
// while.
func (g *Asking) Silent(now Moment) bool {
	return g.asked > g.sent && now-g.got > AskEvery+Silence
}

// Hint makes the group ask at the moment at, or earlier if that was planned already. An ask that
// is queued or under way need not tell what the hint is about, because it may have run before:
// a hint is remembered, and causes another one.
func (g *Asking) Hint(at Moment) {
	if g.hinted == 0 || at < g.hinted {
		g.hinted = at
	}
}

// HintLater is Hint for a message that anybody who may publish can have sent: the ask comes
// hintPause after the last one.
func (g *Asking) HintLater() { g.Hint(g.asked + hintPause) }

// Next returns when to ask next: after the usual interval, less jitter, or earlier when the
// first lease ends (a crashed holder's permit is free right then) or when a hint has called for
// an ask. A new waiter or the reply to an earlier ask does not delay an ask that a hint called
// for.
func (g *Asking) Next(jitter time.Duration) Moment {
	at := g.asked + AskEvery - jitter
	if g.firstEnd != 0 && g.firstEnd < at {
		at = max(g.firstEnd, g.asked+minAskPause)
	}
	if g.hinted != 0 && g.hinted < at {
		at = g.hinted
	}
	return at
}
