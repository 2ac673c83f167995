package life

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// What the attempts of the world and their callers do with replies and with time, and what must hold
// after each step and at the end.

// answer hands the outcome of a call to its attempt.
func (w *world) answer(f flight) (violation string) {
	for j, term := range f.own {
		if term > 0 && f.code != Unanswered && !f.asks[j].asked {
			o := &w.actors[j]
			o.OnNews(&Outcome{Code: Granted, Term: term, Trip: w.handles[o.handle].Trip()}, false, f.sent, w.now)
			if violation := w.look(int8(j)); violation != "" {
				return violation
			}
		}
	}
	if f.kind == askCall {
		return w.answerAsk(f)
	}
	a, res := &w.actors[f.who], Outcome{Code: f.code, Term: f.term, Copied: f.copied}
	res.TooFew, res.Confirmed = w.confirmation(&f)
	var fx Effect
	switch f.kind {
	case enterCall:
		before := a.State
		fx = a.OnEnter(&res, f.sent, w.now)
		if before == Entering && a.State == Holding {
			w.granted(a, f)
			a.looked = true
		}
		if before == Entering && a.State == Waiting {
			w.joins(a, f.sent)
		}
	case leaveCall:
		fx = a.OnLeave(&res, w.now)
	case renewCall:
		fx = a.OnRenew(&res, f.asked, f.sent, w.now)
	case keepCall:
		fx = a.OnRenew(&res, f.asked, f.sent, w.now)
		w.asked(a, f)
	case recallMessage:
		w.recalled(a)
	case slotCall:
		return w.learnsOfSlot(f)
	case message:
		switch {
		case a.State != Waiting:
			fx = a.OnHint(w.now)
		case f.code == Unanswered: // a hint of a revocation
			w.handles[a.handle].HintLater()
		case f.sent+f.term-Margin(f.term) <= w.now:
			w.handles[a.handle].Hint(w.now)
		default:
			res.Trip = w.handles[a.handle].Trip()
			fx = a.OnNews(&res, false, f.sent, w.now)
		}
	}
	if fx&Ask != 0 {
		w.handles[a.handle].replyLost(w.now)
	}
	return w.look(f.who)
}

// look lets the caller of an attempt look until it has nothing to do.
func (w *world) look(i int8) (violation string) {
	a := &w.actors[i]
	for a.caller == waits {
		do, _ := a.Look(w.now)
		switch do {
		case LookSend:
			a.Send()
			w.put(flight{kind: enterCall, who: i, sent: w.now, at: w.now + w.trip/2, void: w.now + VoidAfter, term: worldTTL})
			return ""
		case LookDetach:
			a.Detach(w.now+VoidAfter, w.now)
		case LookTake:
			a.Take(w.now)
			if a.once && !a.looked {
				a.caller = looks
				w.put(flight{kind: slotCall, who: i, sent: w.now, at: w.now + w.trip/2})
				return ""
			}
			return w.begins(i)
		case LookTold:
			a.caller, a.result = gone, a.Told
			if a.result == TellAgain && a.revokd && !w.flushed && !w.failedOver {
				return fmt.Sprintf("S4: %c was revoked, and its caller begins a new attempt", 'A'+i)
			}
		default:
			return ""
		}
	}
	if a.caller == rests && a.State != Holding {
		a.caller = gone
	}
	if a.caller == releases && a.Told != WaitOn {
		a.caller, a.result = gone, a.Told
		return w.judgeRelease(i)
	}
	return ""
}

// ends makes the caller of a waiting attempt leave, because its ctx has ended.
func (w *world) ends(i int8) {
	a := &w.actors[i]
	a.ctx = true
	a.Leave(w.now)
	a.Detach(w.now+VoidAfter, w.now)
	a.caller = gone
}

// gives makes the holder give back.
func (w *world) gives(i int8) string {
	a := &w.actors[i]
	if a.mayRest(w.now) && a.Rest(w.now) {
		a.caller, a.until = rests, w.now+keepFor
		return ""
	}
	a.wasRev = w.redis.revoked[i]
	if was, _ := a.Release(w.now, false); was != Holding {
		a.caller = gone
		return ""
	}
	a.caller, a.Complete = releases, a.atWork && !a.errs
	w.put(w.leave(i))
	return ""
}

// leave prepares a leave.
func (w *world) leave(i int8) flight {
	a := &w.actors[i]
	return flight{kind: leaveCall, who: i, sent: w.now, at: w.now + w.trip/2, void: a.copiesUntil(w.now), stores: a.Complete}
}

// copiesUntil is what the driver keeps as void: until when a copy of the enter may run.
func (a *Life) copiesUntil(now Moment) Moment {
	if a.runs > now {
		return a.runs
	}
	return 0
}

// ticks does what is due of an attempt.
func (w *world) ticks(i int8) string {
	a := &w.actors[i]
	pending := Moment(0)
	for _, f := range w.calls {
		if f.who == i && f.stage != stray && (f.kind == renewCall && a.State == Holding || f.kind == leaveCall && a.State == Leaving) {
			pending = max(pending, f.sent+timeout)
		}
	}
	do, _ := a.Tick(w.now, pending)
	switch do {
	case ToRenew:
		w.put(flight{kind: renewCall, who: i, sent: w.now, at: w.now + w.trip/2, asked: worldTTL})
	case ToProbe:
		w.put(flight{kind: renewCall, who: i, sent: w.now, at: w.now + w.trip/2, asked: ProbeTerm})
	case ToLeave:
		w.put(w.leave(i))
	}
	return w.look(i)
}

// next returns what happens next in the usual course, and lets time pass until then. what < 0: nothing more does.
func (w *world) next() (what int) {
	at := Never
	what = -1
	consider := func(t Moment, id int) {
		if t < at {
			at, what = t, id
		}
	}
	for i, f := range w.calls {
		if f.kind != noCall {
			consider(f.at, i)
		}
	}
	for i := range w.n {
		a := &w.actors[i]
		id := 100 + int(i)
		switch {
		case a.caller == notBegun || a.caller == holds:
			consider(a.until, id)
		case a.caller == waits && a.State == Entering && !a.Flying:
			consider(max(w.now, a.Next), id)
		case a.caller == rests:
			consider(max(w.now, a.wakesAt()), id)
		}
		if t, _ := a.Due(); t != Never {
			consider(max(t, w.now), 200+int(i))
		}
		if t := w.asksAt(i); t != Never {
			consider(max(w.now, t), 300+int(i))
		}
	}
	if what >= 0 {
		w.now = max(w.now, at)
	}
	return what
}

// step does what happens next.
func (w *world) step(what int) string {
	switch i := int8(what % 100); {
	case what < 100:
		f := w.calls[i]
		switch f.stage {
		case request:
			w.run(&f)
			f.stage, f.at = reply, w.now+w.trip/2
			w.calls[i] = f
			return ""
		case stray:
			w.calls[i] = flight{}
			w.run(&f)
			return ""
		case silentFor:
			f.code = Unanswered
		}
		w.calls[i] = flight{}
		return w.answer(f)
	case what < 200:
		a := &w.actors[i]
		switch a.caller {
		case holds:
			return w.gives(i)
		case rests:
			return w.rests(i)
		}
		if a.caller == notBegun {
			a.caller = waits
		}
		return w.look(i)
	case what < 300:
		return w.ticks(i)
	default:
		w.asks(i)
		return ""
	}
}

// judgeRelease judges what a release is told.
func (w *world) judgeRelease(i int8) string {
	a := &w.actors[i]
	switch {
	case a.result == TellDone && a.wasRev && w.redis.revoked[i]: // a FLUSHALL takes the mark, too
		return fmt.Sprintf("S4: the release of %c says nil; its lease was revoked before", 'A'+i)
	case a.result == TellLost && !w.spoilt && !a.Complete: // a run that could not be stored is lost
		return fmt.Sprintf("S4: the release of %c, before its deadline, says that the lease was lost", 'A'+i)
	case a.result == TellRevoked && !a.revokd:
		return fmt.Sprintf("S4: the release of %c says revoked", 'A'+i)
	}
	return ""
}

// judge checks what holds in every state.
func (w *world) judge() string {
	used := int8(0)
	for i := range w.n {
		a, r := &w.actors[i], &w.redis
		if a.caller == holds && a.State == Holding && w.now < a.Deadline {
			used++
			if r.expiry[i] <= w.now && !w.spoilt {
				return fmt.Sprintf("S3: %c counts on its lease; Redis does not have it", 'A'+i)
			}
		}
		if a.State == Over && a.settled && (r.expiry[i] > w.now || r.ticket[i] != 0 && r.alive[i] > w.now) && !w.spoilt && !w.failedOver {
			return fmt.Sprintf("L2: %c is over, and Redis has a lease or a place of it for nobody", 'A'+i)
		}
		if a.caller == gone && a.State == Holding {
			return fmt.Sprintf("L2: the caller of %c is gone, and its lease is renewed", 'A'+i)
		}
	}
	if violation := cmp.Or(w.judgeKept(), w.judgeRuns(), w.judgeSigns()); violation != "" {
		return violation
	}
	if used > w.limit && !w.spoilt {
		return fmt.Sprintf("S1: %d hold at once", used)
	}
	if w.now > epoch+worldLimit {
		return "L1: it does not end"
	}
	return ""
}

// judgeEnd checks what holds when nothing more happens.
func (w *world) judgeEnd() string {
	for i := range w.n {
		a := &w.actors[i]
		switch {
		case a.caller != gone:
			return fmt.Sprintf("L1: %c waits for nothing, as %v", 'A'+i, a.caller)
		case a.State != Over && a.State != Lost:
			return fmt.Sprintf("L2: %c is left in state %d", 'A'+i, a.State)
		case w.redis.expiry[i] > w.now+time.Second && !w.spoilt && !w.failedOver:
			return fmt.Sprintf("L2: Redis keeps a lease of %c for nobody", 'A'+i)
		}
	}
	return ""
}

// String shows where the world is.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8.3fs ", (w.now - epoch).Seconds())
	for i := range w.n {
		a := &w.actors[i]
		state := [...]string{"entering", "waiting", "holding", "lost", "leaving", "over"}[a.State]
		fmt.Fprintf(&b, " %c:%s/%s", 'A'+i, state, [...]string{"-", "waits", "looks", "holds", "releases", "rests", "gone"}[a.caller])
		if w.redis.expiry[i] > w.now {
			fmt.Fprintf(&b, "(lease %.2fs)", (w.redis.expiry[i] - w.now).Seconds())
		}
		if w.redis.ticket[i] != 0 {
			b.WriteString("(place)")
		}
	}
	return b.String()
}
