package life

import (
	"fmt"
	"time"
)

// Handles in the world of the explorer. All waiters of a handle share one Asking, as they do in a
// group (internal/lease), and one ask is a sign of life of all of them.

// handle is what a handle knows beside its attempts.
type handle struct {
	Asking
	missed Moment // when a reply was last lost that may have told of grants
}

// waiter is what an attempt has to do with its handle.
type waiter struct {
	handle int8
	signed Moment // when the reply came to its enter, or the last ask for it was sent
}

// askedFor says which attempts an ask is for, and what its reply says of each.
type askedFor [mostActors]struct {
	asked bool
	code  Code // Granted: flight.own has the term
}

// oneHandle makes all attempts be of one handle.
func oneHandle(w *world) {
	for i := range w.n {
		w.actors[i].handle = 0
	}
}

// newcomer makes one attempt hold for longer than a sign of life lasts, while another one of the
// same handle waits, and a third one queues behind it.
func newcomer(w *world) {
	oneHandle(w)
	w.actors[2].until = epoch + AskEvery/2
	w.actors[0].lasts = AskEvery + AskEvery/2
}

// inLine reports whether some attempt of the handle h waits, other than one.
func (w *world) inLine(h int8, one *actor) bool {
	for i := range w.n {
		if a := &w.actors[i]; a != one && a.handle == h && a.State == Waiting {
			return true
		}
	}
	return false
}

// joins makes an attempt wait with the others of its handle. Its enter was sent at the moment sent.
func (w *world) joins(a *actor, sent Moment) {
	h := &w.handles[a.handle]
	if !w.inLine(a.handle, a) {
		if h.Next(0) <= w.now { // the group was due, and empty
			h.Asking = Asking{}
		}
		h.Alive(sent)
	}
	a.signed = w.now
	h.Heard(sent, w.now, 0)
	if h.missed >= sent {
		h.Hint(w.now)
	}
}

// replyLost notes that a reply was lost that may have told of grants.
func (h *handle) replyLost(now Moment) {
	h.missed = now
	h.Hint(now)
}

// asksAt returns when the handle h asks. It waits for an ask that is not late.
func (w *world) asksAt(h int8) Moment {
	if !w.inLine(h, nil) {
		return Never
	}
	at := w.handles[h].Next(0)
	for _, f := range w.calls {
		if f.kind == askCall && f.who == h && f.stage != stray {
			at = max(at, f.sent+timeout+w.trip)
		}
	}
	return at
}

// asks sends an ask for all that wait.
func (w *world) asks(h int8) {
	w.handles[h].Asks(w.now)
	f := flight{kind: askCall, who: h, sent: w.now, at: w.now + w.trip/2}
	for i := range w.n {
		if a := &w.actors[i]; a.handle == h && a.State == Waiting {
			f.asks[i].asked, a.signed = true, w.now
		}
	}
	w.put(f)
}

// runAsk runs an ask on the server.
func (w *world) runAsk(f *flight) {
	r := &w.redis
	for i := range w.n {
		if f.asks[i].asked && r.ticket[i] != 0 {
			r.alive[i] = w.now + aliveFor
		}
	}
	w.advance(f.who)
	f.code = Answered
	for i := range w.n {
		switch one := &f.asks[i]; {
		case !one.asked:
		case r.expiry[i] != 0:
			one.code, w.own[i] = Granted, r.expiry[i]-w.now
		case r.ticket[i] != 0:
			one.code = Queued
		default:
			one.code = w.unlessRevoked(i, Gone)
		}
	}
}

// answerAsk hands the outcome of an ask to those that wait.
func (w *world) answerAsk(f flight) (violation string) {
	h := &w.handles[f.who]
	if f.code != Unanswered {
		h.Answered(f.sent)
		h.Heard(f.sent, w.now, 0)
	} else if !h.Failed(false, w.now) {
		h.Hint(w.now + 50*time.Millisecond)
		return ""
	}
	for i := range w.n {
		a, res := &w.actors[i], Outcome{Code: f.code, Copied: f.copied}
		switch {
		case a.handle != f.who || a.State != Waiting:
			continue
		case f.code != Unanswered && !f.asks[i].asked:
			continue
		case f.code != Unanswered:
			res.Code, res.Term, res.Trip = f.asks[i].code, f.own[i], h.Trip()
		}
		if a.OnNews(&res, true, f.sent, w.now)&Ask != 0 {
			h.replyLost(w.now)
		}
		if violation := w.look(i); violation != "" {
			return violation
		}
	}
	return ""
}

// judgeSigns checks that those that wait give signs of life in time.
func (w *world) judgeSigns() string {
	for i := range w.n {
		a := &w.actors[i]
		if silent := w.now - max(a.signed, w.stopped); a.State == Waiting && silent > AskEvery+w.trip {
			return fmt.Sprintf("L1: %c waits, and has given no sign of life for %v", 'A'+i, silent)
		}
	}
	return ""
}
