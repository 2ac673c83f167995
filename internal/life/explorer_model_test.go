package life

import "time"

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
	who    int8 // the attempt; of an ask: the handle
	copied bool // a copy of it may still run
	code   Code // of the reply
	sent   Moment
	at     Moment
	void   Moment             // of an enter: when it is void; of a leave: until when copies of the enter may run
	term   Moment             // of a grant, or asked for
	asked  Moment             // the term that a renewal asks for
	own    [mostActors]Moment // terms of the leases of other attempts of the handle that the reply tells
	asks   askedFor           // of an ask
	kept   keptReply
	stores bool // of a leave: it completes the slot, if the lease is held
	few    bool // too few replicas confirm it
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
	slot    int8               // which attempt completed it, from 1; 0: it is open
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
	caller callerState
	waiter
	until         Moment // it begins, or gives back, at this moment
	lasts         Moment // how long it holds
	result        Verdict
	ctx           bool // its ctx has ended
	revokd        bool // it was revoked
	wasRev        bool // it was revoked before it was given back
	revokedInLine bool // it was revoked while it waited
	keeper
	runner
}

type world struct {
	now     Moment
	actors  [mostActors]actor
	calls   [mostCalls]flight
	n       int8 // actors
	limit   int8
	redis   serverKeys
	own     [mostActors]Moment // see flight.own; of the call that runs
	handles [mostActors]handle
	spoilt  bool // FLUSH or a revocation: some promises do not hold
	flushed bool
	full    bool   // more calls than the world has room for
	stopped Moment // when the processes last stood still
	trip    Moment // how long a call and its answer take together
	replicas
}

func newWorld(n, limit int, scene func(w *world)) *world {
	w := &world{now: epoch, n: int8(n), limit: int8(limit), trip: roundTrip}
	for i := range n {
		a := &w.actors[i]
		a.Life = New(Options{TTL: worldTTL, Waits: true})
		a.until = epoch + Moment(i)*50*time.Millisecond
		a.handle, a.lasts = int8(i), holdFor
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
	defer func() {
		if f.own = w.own; f.kind != askCall {
			f.own[i] = 0
		}
		w.replicate(f)
	}()
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
		case w.actors[i].once && r.slot != 0:
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
			w.advance(w.actors[i].handle)
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
		repeated := f.stores && r.complete(i)
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
		w.advance(w.actors[i].handle)
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
		w.runAsk(f)
	case slotCall:
		if r.slot != 0 {
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

// advance grants to the waiters in order. The handle by has called, so it is alive; any other is
// told by a message, and may be dead, so its first term is short.
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
		if w.actors[first].handle == by {
			term = worldTTL
			w.own[first] = term
		} else {
			w.put(flight{kind: message, stage: reply, who: first, code: Granted, sent: w.now, at: w.now + w.trip, term: term})
		}
		r.ticket[first], r.expiry[first] = 0, w.now+term
	}
}
