package life

import (
	"fmt"
	"time"
)

// Kept leases in the world of the explorer. The life is the real one. Which leases may rest is a
// model of what internal/localturns decides, and so are the register of keepers and the mark of a
// recall (luascripts/permits/shared/recall.lua). Each actor is a process of its own here, and hears
// recalls from the beginning; that a recall is not heard is a deviation.

const (
	keepFor      = 4 * time.Second // longer than idleBesideMe: it must not end the wait of others
	askAfter     = time.Second
	silentAfter  = 2 * time.Second
	retryAsk     = 250 * time.Millisecond
	registered   = 2500 * time.Millisecond
	recalledFor  = 100 * time.Millisecond
	idleBesideMe = silentAfter + 10*roundTrip // how long nobody waits beside an idle lease
)

// keptReply is what the reply to an enter or a renewal says of kept leases.
type keptReply struct{ keepable, added, recalled bool }

// keeper is what a process knows of the lease that it keeps.
type keeper struct {
	keeps      bool
	keepable   bool   // its own enter got the lease, and no mark stood
	enterSent  Moment // when that was sent
	heardAt    Moment // when the last call was sent whose answer told of no recall
	recalledAt Moment
	asksKept   bool   // a renewal that asks is under way
	askAgain   Moment // none begins before
}

// keeping makes the first n processes keep leases. The others come when the first lease rests.
func keeping(n int) func(w *world) {
	return func(w *world) {
		for i := range n {
			w.actors[i].keeps = true
		}
		for i := 1; i < int(w.n); i++ {
			w.actors[i].until = epoch + holdFor + Moment(i)*100*time.Millisecond
		}
	}
}

// register registers a process, and reports whether it was not.
func (r *serverKeys) register(i int8, now Moment) (added bool) {
	added = r.keepers[i] <= now
	r.keepers[i] = now + registered
	return added
}

// recall tells those that keep that a request found no room.
func (w *world) recall() {
	r := &w.redis
	if r.mark > w.now {
		r.mark = w.now + recalledFor
		return
	}
	for j := range w.n {
		if r.keepers[j] > w.now {
			r.mark = w.now + recalledFor
			w.put(flight{kind: recallMessage, stage: reply, who: j, sent: w.now, at: w.now + w.trip})
		}
		r.keepers[j] = 0
	}
}

// granted notes how a process got its lease.
func (w *world) granted(a *actor, f flight) {
	if a.keepable, a.enterSent = f.kept.keepable, f.sent; !a.keepable {
		return
	}
	if f.kept.added && a.recalledAt < f.sent {
		a.recalledAt = f.sent - 1
	}
	a.heardAt = max(a.heardAt, f.sent)
}

func (a *actor) mayRest(now Moment) bool {
	return a.keeps && a.keepable && a.enterSent > a.recalledAt && now-a.heardAt < silentAfter
}

// recalled gives back what rests.
func (w *world) recalled(a *actor) {
	a.recalledAt = w.now
	w.letGo(a)
}

// letGo gives back a lease that rests.
func (w *world) letGo(a *actor) {
	if a.caller == rests {
		a.GiveBack(ByHolder, w.now)
		a.caller = gone
	}
}

// wakesAt is when something is due of a lease that rests.
func (a *actor) wakesAt() Moment {
	at := min(a.until, a.heardAt+silentAfter)
	if !a.asksKept {
		at = min(at, max(a.heardAt+askAfter, a.askAgain))
	}
	return at
}

// rests does what is due of a lease that rests.
func (w *world) rests(i int8) string {
	a := &w.actors[i]
	switch {
	case w.now >= a.until || w.now-a.heardAt >= silentAfter:
		w.letGo(a)
	case !a.asksKept && w.now >= max(a.heardAt+askAfter, a.askAgain):
		a.asksKept = true
		w.put(flight{kind: keepCall, who: i, sent: w.now, at: w.now + w.trip/2, asked: worldTTL})
	}
	return w.look(i)
}

// asked takes the answer to a renewal that asked.
func (w *world) asked(a *actor, f flight) {
	switch a.asksKept = false; {
	case f.code == Unanswered:
		a.askAgain = w.now + retryAsk
	case f.code == Granted && f.kept.recalled:
		w.recalled(a)
	case f.code == Granted:
		a.heardAt = max(a.heardAt, f.sent)
	}
}

// resumes begins a turn on a lease that rests.
func (w *world) resumes(i int8) string {
	a := &w.actors[i]
	if w.now >= a.until || !a.mayRest(w.now) || !a.Resume(w.now) {
		w.letGo(a)
		return w.look(i)
	}
	a.caller, a.until = holds, w.now+a.lasts
	return ""
}

// judgeKept checks what holds of leases that rest.
func (w *world) judgeKept() string {
	for i := range w.n {
		a := &w.actors[i]
		if a.Idle && a.State == Holding && a.caller != rests {
			return fmt.Sprintf("L2: %c is idle, and nobody keeps it", 'A'+i)
		}
		if a.caller == holds && a.State == Holding && a.Idle {
			return fmt.Sprintf("S4: %c is in use; its loss would not be told", 'A'+i)
		}
		if a.caller != rests || w.now >= a.until {
			continue
		}
		for j := range w.n {
			since := max(w.redis.ticket[j], w.stopped)
			if w.redis.ticket[j] != 0 && w.redis.alive[j] > w.now && w.now-since > idleBesideMe && !w.spoilt {
				return fmt.Sprintf("L1: %c has waited for %v beside an idle lease of %c", 'A'+j, w.now-since, 'A'+i)
			}
		}
	}
	return ""
}
