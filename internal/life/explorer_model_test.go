package life

import (
	"fmt"
	"strings"
	"time"
)

// The world of the explorer: what Redis holds of one key, as the scripts keep it, the attempts
// with their lives and callers, and the calls and messages that are under way. It is a value
// that can be compared and hashed.

const (
	mostActors = 3
	mostCalls  = 8

	roundTrip  = time.Millisecond
	timeout    = time.Second             // a call without an answer is given up after that
	lateBy     = 4900 * time.Millisecond // a request that is held up runs so long after its sending
	probation  = 2 * time.Second
	aliveFor   = 4500 * time.Millisecond
	tombstone  = 30 * time.Second
	holdFor    = 300 * time.Millisecond
	stopFor    = 2500 * time.Millisecond // a process that stops does nothing for so long
	worldTTL   = 3 * time.Second
	epoch      = time.Hour // the first moment
	worldLimit = 90 * time.Second
)

type kind uint8

const (
	noCall kind = iota
	enterCall
	leaveCall
	renewCall
	askCall
	keepCall // a renewal that asks whether the lease was recalled
	slotCall // asks whether the slot is complete
	message
	recallMessage
)

type stage uint8

const (
	request   stage = iota // on its way to Redis
	reply                  // on its way back
	silentFor              // its caller gives it up at the moment at
	stray                  // a copy that runs at the moment at, and whose reply nobody hears
)

// flight is a call or a message under way.
type flight struct {
	kind   kind
	stage  stage
	who    int8
	copied bool // a copy of it may still run
	code   Code // of the reply
	sent   Moment
	at     Moment
	void   Moment             // of an enter: when it is void; of a leave: until when copies of the enter may run
	term   Moment             // of a grant, or asked for
	asked  Moment             // the term that a renewal asks for
	own    [mostActors]Moment // terms of the grants to others of the handle that the reply tells
	kept   keptReply
	stores bool // of a leave: it completes the slot, if the lease is held
}

// serverKeys is what the server has of the key.
type serverKeys struct {
	expiry  [mostActors]Moment // of the lease; 0: none
	ticket  [mostActors]Moment // of the place; 0: none
	alive   [mostActors]Moment
	tomb    [mostActors]Moment
	revoked [mostActors]bool
	keepers [mostActors]Moment // until when its process is registered; 0: it is not
	mark    Moment             // until when the mark of a recall stands
	slot    slotKey
}

type callerState uint8

const (
	notBegun callerState = iota
	waits
	looks // it has a lease, and asks whether the slot is complete
	holds
	releases
	rests // it has given back, and its process keeps the lease
	gone
)

type actor struct {
	Life
	Asking
	caller callerState
	inLine bool   // it is in its group
	until  Moment // it begins, or gives back, at this moment
	result Verdict
	ctx    bool // its ctx has ended
	rel    Moment
	revokd bool // it was revoked
	wasRev bool // it was revoked before it was given back
	safe   bool // nothing has touched its lease but its own calls
	keeper
	runner
}

type world struct {
	now       Moment
	actors    [mostActors]actor
	calls     [mostCalls]flight
	n         int8 // actors
	limit     int8
	redis     serverKeys
	own       [mostActors]Moment // see flight.own; of the call that runs
	missed    [mostActors]Moment // by handle: when a reply was last lost that may have told of grants
	oneHandle bool               // all attempts are of one handle
	spoilt    bool               // FLUSH or a revocation: some promises do not hold
	flushed   bool
	full      bool   // more calls than the world has room for
	stopped   Moment // when the processes last stood still
}

func newWorld(n, limit int, scene func(w *world)) *world {
	w := &world{now: epoch, n: int8(n), limit: int8(limit)}
	for i := range n {
		a := &w.actors[i]
		a.Life = New(Options{TTL: worldTTL, Waits: true})
		a.until = epoch + Moment(i)*50*time.Millisecond
		a.safe = true
	}
	if scene != nil {
		scene(w)
	}
	return w
}

func (w *world) put(f flight) {
	for i := range w.calls {
		if w.calls[i].kind == noCall {
			w.calls[i] = f
			return
		}
	}
	w.full = true
}

// run runs a call on the server.
func (w *world) run(f *flight) {
	r, i := &w.redis, f.who
	w.own = [mostActors]Moment{}
	defer func() { f.own = w.own; f.own[i] = 0 }()
	for j := range r.expiry { // what is over is not there
		if r.expiry[j] != 0 && r.expiry[j] <= w.now {
			r.expiry[j] = 0
		}
		if r.ticket[j] != 0 && r.alive[j] <= w.now {
			r.ticket[j] = 0
		}
		if r.tomb[j] != 0 && r.tomb[j] <= w.now {
			r.tomb[j] = 0
		}
	}
	f.code = Gone
	switch f.kind {
	case enterCall:
		switch {
		case w.actors[i].once && r.slot.by != 0:
			f.code = Answered
		case w.now >= f.void:
			f.code = Void
		case r.expiry[i] != 0:
			f.code, f.term = Granted, r.expiry[i]-w.now
		case r.tomb[i] != 0 && r.ticket[i] == 0:
			f.code = w.unlessRevoked(i, GivenUp)
		default:
			first := r.ticket[i] == 0
			if first {
				r.ticket[i] = w.now
			}
			r.alive[i] = w.now + aliveFor
			w.advance(i)
			f.code = Queued
			if r.expiry[i] != 0 {
				f.code, f.term = Granted, r.expiry[i]-w.now
				if first && w.actors[i].keeps && r.mark <= w.now {
					f.kept.keepable, f.kept.added = true, r.register(i, w.now)
				}
			} else {
				w.recall()
			}
		}
	case leaveCall:
		repeated := f.stores && r.slot.complete(i, r.expiry[i] != 0)
		switch {
		case repeated || r.expiry[i] != 0:
			f.code = Held
		case r.ticket[i] != 0:
			f.code = Queued
		default:
			f.code = w.unlessRevoked(i, Gone)
		}
		r.expiry[i], r.ticket[i] = 0, 0
		if f.void > w.now {
			r.tomb[i] = max(r.tomb[i], f.void)
		}
		w.advance(i)
	case renewCall, keepCall:
		f.code = w.unlessRevoked(i, Gone)
		if f.kind == keepCall {
			if f.kept.recalled = r.mark > w.now || r.keepers[i] <= w.now; !f.kept.recalled && r.expiry[i] != 0 {
				r.register(i, w.now)
			}
		}
		if r.expiry[i] != 0 {
			r.expiry[i] = max(r.expiry[i], w.now+f.asked)
			f.code, f.term = Granted, r.expiry[i]-w.now
		}
	case askCall:
		if r.ticket[i] != 0 {
			r.alive[i] = w.now + aliveFor
		}
		w.advance(i)
		switch {
		case r.expiry[i] != 0:
			f.code, f.term = Granted, r.expiry[i]-w.now
		case r.ticket[i] != 0:
			f.code = Queued
		default:
			f.code = w.unlessRevoked(i, Gone)
		}
	case slotCall:
		if r.slot.by != 0 {
			f.code = Answered
		}
	}
}

func (w *world) unlessRevoked(i int8, code Code) Code {
	if w.redis.revoked[i] {
		return Revoked
	}
	return code
}

// advance grants to the waiters in order. The process of by is alive; any other is told by a
// message, and may be dead, so its first term is short.
func (w *world) advance(by int8) {
	r := &w.redis
	for {
		used, first := int8(0), int8(-1)
		for j := range w.n {
			if r.expiry[j] > w.now {
				used++
			}
			if r.ticket[j] != 0 && (first < 0 || r.ticket[j] < r.ticket[first]) {
				first = j
			}
		}
		if used >= w.limit || first < 0 {
			return
		}
		term := min(worldTTL, probation)
		if first == by || w.oneHandle && by >= 0 {
			term = worldTTL
			w.own[first] = term
		} else {
			w.put(flight{kind: message, stage: reply, who: first, code: Granted, sent: w.now, at: w.now + roundTrip, term: term})
		}
		r.ticket[first], r.expiry[first] = 0, w.now+term
	}
}

// answer hands the outcome of a call to its attempt.
func (w *world) answer(f flight) (violation string) {
	for j, term := range f.own {
		if term > 0 && f.code != Unanswered {
			o := &w.actors[j]
			o.OnNews(&Outcome{Code: Granted, Term: term}, false, f.sent, w.now)
			o.inLine = o.inLine && o.State == Waiting
			if violation := w.look(int8(j)); violation != "" {
				return violation
			}
		}
	}
	if w.oneHandle && f.kind != message && (f.code == Unanswered || f.copied) {
		w.missed[0] = w.now
		for j := range w.n {
			if o := &w.actors[j]; o.inLine {
				o.Hint(w.now)
			}
		}
	}
	a, res := &w.actors[f.who], Outcome{Code: f.code, Term: f.term, Copied: f.copied}
	var fx Effect
	switch f.kind {
	case enterCall:
		before := a.State
		fx = a.OnEnter(&res, f.sent, w.now)
		if before == Entering && a.State == Holding {
			w.granted(a, f)
			a.looked = true
		}
		if a.State == Waiting && !a.inLine {
			a.inLine = true
			a.Asking = Asking{}
			a.Alive(f.sent)
			a.Heard(f.sent, w.now, 0)
			if fx&Ask != 0 || w.oneHandle && w.missed[0] >= f.sent {
				a.Hint(w.now)
			}
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
	case askCall:
		if f.code == Unanswered {
			if a.Failed(false, w.now) {
				fx = a.OnNews(&res, true, f.sent, w.now)
			} else {
				a.Hint(w.now + 50*time.Millisecond)
			}
		} else if a.inLine {
			a.Heard(f.sent, w.now, 0)
			fx = a.OnNews(&res, true, f.sent, w.now)
		}
	case message:
		switch {
		case a.State != Waiting:
			fx = a.OnHint(w.now)
		case f.sent+f.term-Margin(f.term) <= w.now:
			a.Hint(w.now)
		default:
			fx = a.OnNews(&res, false, f.sent, w.now)
		}
	}
	if a.State != Waiting {
		a.inLine = false
	} else if fx&Ask != 0 {
		a.Hint(w.now)
	}
	return w.look(f.who)
}

// look lets the caller of an attempt look until it has nothing to do.
func (w *world) look(i int8) (violation string) {
	a := &w.actors[i]
	for a.caller == waits {
		do, _ := a.Life.Look(w.now)
		if a.State != Waiting {
			a.inLine = false
		}
		switch do {
		case LookSend:
			a.Send()
			w.put(flight{kind: enterCall, who: i, sent: w.now, at: w.now + roundTrip/2, void: w.now + VoidAfter, term: worldTTL})
			return ""
		case LookDetach:
			a.Detach(w.now+VoidAfter, w.now)
		case LookTake:
			a.Take(w.now)
			if a.once && !a.looked {
				a.caller = looks
				w.put(flight{kind: slotCall, who: i, sent: w.now, at: w.now + roundTrip/2})
				return ""
			}
			return w.begins(i)
		case LookTold:
			a.caller, a.result = gone, a.Told
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
	a.inLine = false
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
	a.rel, a.wasRev = w.now, w.redis.revoked[i]
	was, _ := a.Release(w.now, false)
	if was != Holding {
		a.caller = gone
		if was == Lost && a.safe && !w.spoilt && w.redis.expiry[i] > w.now+roundTrip {
			return "" // it stopped in time, which is what the deadline is for
		}
		return ""
	}
	a.caller, a.Complete = releases, a.atWork && !a.errs
	w.put(w.leave(i))
	return ""
}

// leave prepares a leave.
func (w *world) leave(i int8) flight {
	a := &w.actors[i]
	return flight{kind: leaveCall, who: i, sent: w.now, at: w.now + roundTrip/2, void: a.copiesUntil(w.now), stores: a.Complete}
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
		w.put(flight{kind: renewCall, who: i, sent: w.now, at: w.now + roundTrip/2, asked: worldTTL})
	case ToProbe:
		w.put(flight{kind: renewCall, who: i, sent: w.now, at: w.now + roundTrip/2, asked: ProbeTerm})
	case ToLeave:
		w.put(w.leave(i))
	}
	return w.look(i)
}

// next returns what happens next in the usual course, and when. what < 0: nothing more does.
func (w *world) next() (at Moment, what int) {
	at, what = Never, -1
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
			consider(max(w.now, a.Life.Next), id)
		case a.caller == rests:
			consider(max(w.now, a.wakesAt()), id)
		}
		if t, _ := a.Due(); t != Never {
			consider(max(t, w.now), 200+int(i))
		}
		if a.inLine {
			consider(max(w.now, a.Asking.Next(0)), 300+int(i))
		}
	}
	return at, what
}

// step does what happens next.
func (w *world) step(what int) string {
	switch i := int8(what % 100); {
	case what < 100:
		f := w.calls[i]
		switch f.stage {
		case request:
			w.run(&f)
			f.stage, f.at = reply, w.now+roundTrip/2
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
		a := &w.actors[i]
		a.Asks(w.now)
		for j, f := range w.calls { // the group waits for an ask that is not late
			if f.kind == askCall && f.who == i && f.stage != stray {
				a.Hint(max(w.now, w.calls[j].sent+timeout) + roundTrip)
				return ""
			}
		}
		w.put(flight{kind: askCall, who: i, sent: w.now, at: w.now + roundTrip/2})
		return ""
	}
}

// judgeRelease judges what a release is told.
func (w *world) judgeRelease(i int8) string {
	a := &w.actors[i]
	switch {
	case a.result == TellDone && a.wasRev:
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
		if a.State == Over && a.settled && (r.expiry[i] > w.now || r.ticket[i] != 0 && r.alive[i] > w.now) && !w.spoilt {
			return fmt.Sprintf("L2: %c is over, and Redis has a lease or a place of it for nobody", 'A'+i)
		}
		if a.caller == gone && a.State == Holding {
			return fmt.Sprintf("L2: the caller of %c is gone, and its lease is renewed", 'A'+i)
		}
	}
	if violation := w.judgeKept(); violation != "" {
		return violation
	}
	if violation := w.judgeRuns(); violation != "" {
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
		case w.redis.expiry[i] > w.now+time.Second && !w.spoilt:
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
