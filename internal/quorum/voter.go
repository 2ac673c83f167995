package quorum

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// A voter is one attempt (a protocol.Request) to get the votes of a majority. Its life:
//
//	resting   it has asked for nothing, or has given back all
//	wanting   it asks each server for its vote, and has no majority
//	holding   it had counted a majority; it renews, and heals votes that are missing
//	leaving   it gives back, for good
//
// While it wants, each server has one of two things to say: the voter has its vote, or a place in
// its queue. All servers order the queue by the same ticket. A voter without a majority yields a vote
// to an earlier ticket, so the earliest of those that live gets all votes that nobody else has a
// majority of, and no two wait for each other.
//
// If no majority answers, it gives back at once, so that nobody waits for it, and comes again with
// the same ticket. It then has a new name, since its tombstones refuse the old one.
//
// Which replies count: each server's votes are counted by what its latest reply said, in the order
// in which the calls were sent. From the sending of a yield on, no reply to an earlier call counts.
// If a yield has no answer (yet), it may still give the vote away, so a reply counts only if the
// server's clock shows that the yield is void.
type voter struct {
	f     *Family
	res   *Resource
	terms protocol.Terms

	mu       sync.Mutex // guards the fields below
	phase    phase
	waits    bool
	most     int   // MaxWaiters; 0: no bound
	base     int64 // its ticket, by the clock that stands for all servers; 0: none yet
	ticket   int64 // the same, by the clocks of the servers
	try      int
	member   string
	seats    []seat // one for each server
	rounds   []*round
	revoked  error  // some server said that it was revoked
	lead     uint64 // the token that a free server is to give its vote with: the same for all
	target   uint64 // the highest token that a fence was to be raised to
	token    uint64
	timer    *time.Timer
	timerAt  time.Time
	held     bool          // it held the lock when it began to leave
	once     *permits.Once // the run that it is for; nil: none
	leaveErr error         // why a leave had no answer
}

type phase uint8

const (
	resting phase = iota
	wanting
	holding
	leaving
)

type seat struct {
	stand   stand
	until   time.Time // the vote is surely held until then; of held
	fence   uint64    // the token with which it is held there
	earlier bool      // a live waiter has an earlier ticket
	err     error     // why the server cannot be counted; of failed

	sent      int       // number of the latest call
	applied   int       // number of the latest call whose reply was counted
	last      kind      // of that call
	floor     int       // replies to calls up to this one do not count any more
	notBefore int64     // server time (µs) before which no reply counts
	again     bool      // ask once more when the call under way has its outcome
	asked     time.Time // when that call was begun; zero: none is under way
	raising   uint64    // the token that a call under way raises the fence to
	voids     int       // consecutive calls that arrived too late
	touched   bool      // a call may have left something there
	flights   []*flight
	copies    int64 // server time (µs) until which a copy of an enter may arrive
	had       bool  // the vote was held when the voter began to leave
	left      bool  // a leave was answered, or none is needed
	inLine    bool  // a leave waits in the line of the server
	answer    int8  // what it said: see leaveRound
	state     [3]int64
}

type stand uint8

const (
	nothing stand = iota
	queued
	held
	yielding // a yield is under way, or may still come
	busy     // the vote is not free, and there is no place
	full
	failed // no answer, or one that does not count
	gone   // it has no vote there (any more)
)

// A flight is a call to one server that has no outcome yet.
type flight struct {
	c      *call.Call
	seat   int
	number int
	try    int
	kind   kind
	void   int64
}

type kind uint8

const (
	asks kind = iota
	renews
	heals
	yields
)

// begin gives the voter a new name, and the ticket that it had. Called with the lock.
func (v *voter) begin() {
	v.phase, v.target = wanting, 0
	v.try++
	t := v.terms
	t.Limit = 1
	v.member = t.OwnerID() + "." + strconv.FormatInt(v.ticket, 10) + "." + strconv.Itoa(v.try)
	for i := range v.seats {
		v.seats[i] = seat{}
	}
	v.f.mu.Lock()
	v.f.voters[t.Seq] = v
	v.f.mu.Unlock()
}

// forget takes the voter off the list of those that hints are for.
func (v *voter) forget() {
	v.f.mu.Lock()
	delete(v.f.voters, v.terms.Seq)
	v.f.mu.Unlock()
}

// A todo collects what is to be done once the lock is free.
type todo []func()

func (t *todo) add(f func()) { *t = append(*t, f) }

func (t todo) do() {
	for _, f := range t {
		f()
	}
}

// decide has the voter decide with its lock, and do what comes of that without it.
func (v *voter) decide(what func(t *todo)) {
	var t todo
	v.mu.Lock()
	what(&t)
	v.mu.Unlock()
	t.do()
}

// onHint looks at a server that may have given its vote, or wants it back.
func (v *voter) onHint(i int) {
	v.decide(func(t *todo) {
		switch s := &v.seats[i]; {
		case v.phase == wanting && v.waits:
			v.ask(i, t)
		case v.phase == holding && s.stand != held:
			v.heal(i, v.terms.TTL, t)
		}
	})
}

// late is how long the answer of a server may take before the voter stops counting on it, for now.
// It is less than the time after which a waiter's sign of life is overdue (2 s).
const late = 1500 * time.Millisecond

// raiseAgain is the pause before a fence is raised again.
const raiseAgain = 50 * time.Millisecond

// ask asks a server for its vote, unless a call that does is under way. Then it asks once more
// afterwards: that call may have run already. Called with the lock.
func (v *voter) ask(i int, t *todo) {
	s := &v.seats[i]
	if s.stand == yielding && !s.asked.IsZero() {
		return // its answer tells
	}
	if !s.asked.IsZero() && time.Since(s.asked) < late {
		s.again = true
		return
	}
	v.sendEnter(i, asks, v.terms.TTL, 0, t)
}

// raise asks a server to set the fence of the vote to a token. After an error it does so a moment
// later: a server that is away fails at once, so that its voter would go round without end. Called
// with the lock.
func (v *voter) raise(i int, token uint64, t *todo) {
	s := &v.seats[i]
	if s.raising >= token {
		return
	}
	if s.err != nil {
		v.wakeAt(time.Now().Add(raiseAgain))
		return
	}
	s.raising = token
	v.sendEnter(i, asks, v.terms.TTL, token, t)
}

// heal asks a server for a vote that is missing. The call does nothing once the lease may be over.
// Called with the lock.
func (v *voter) heal(i int, term time.Duration, t *todo) { v.sendEnter(i, heals, term, v.token, t) }

func (v *voter) sendEnter(i int, k kind, term time.Duration, token uint64, t *todo) {
	server := v.f.servers[i]
	mode, raises, most := "wait", 0, v.most
	lead := token
	switch {
	case k == renews:
		mode, raises = "renew", 1
	case k == heals:
		mode, raises = "heal", 1
	case token > 0:
		raises = 1
	default:
		lead = v.lead
	}
	if k == asks && !v.waits {
		mode = "try"
	}
	checks := call.Flag(server.runID() == "")
	fl := &flight{}
	c := v.res.call(enterScript, v.member, checks, &fl.void, call.Milliseconds(term), mode, lead, most, raises).WithText()
	switch k {
	case asks:
		fl.void, c.Void, c.VoidAfter = 1, &fl.void, voidAfter
	case heals:
		left := min(voidAfter, time.Until(v.deadline()))
		if us, wait := server.client.Now(v.res.FirstKey()); wait == nil || us != 0 {
			fl.void = us + left.Microseconds()
		}
		if fl.void == 0 || left <= 0 {
			v.note(i, notAsked)
			return
		}
	}
	if k == renews {
		c.Rank, c.By = call.KeepsLease, v.deadline()
	} else if v.phase == wanting && v.seats[i].applied > 0 {
		c.Rank = call.SignOfLife
	}
	v.send(i, k, c, fl, t)
}

const (
	// voidAfter is how long an enter may take to reach its server.
	voidAfter = 5 * time.Second
	// yieldVoidAfter is the same for a yield. It is short, because the vote counts for nothing
	// until a yield without an answer is void.
	yieldVoidAfter = time.Second
)

// yield lets an earlier ticket have the vote of a server. Called with the lock.
func (v *voter) yield(i int, t *todo) {
	s := &v.seats[i]
	fl := &flight{void: 1}
	c := v.res.call(yieldScript, v.member, 0, &fl.void)
	c.Void, c.VoidAfter, c.Rank = &fl.void, yieldVoidAfter, call.GivesBack
	s.stand, s.floor, s.earlier = yielding, s.sent, false
	v.send(i, yields, c, fl, t)
}

func (v *voter) send(i int, k kind, c *call.Call, fl *flight, t *todo) {
	s := &v.seats[i]
	s.sent++
	s.asked, s.again, s.touched = time.Now(), false, true
	*fl = flight{c: c, seat: i, number: s.sent, try: v.try, kind: k, void: fl.void}
	if k == renews {
		fl.void = 0
	}
	unheard := slices.DeleteFunc(slices.Clone(s.flights), func(other *flight) bool { return other.kind != yields })
	s.flights = append(s.flights, fl)
	server, key := v.f.servers[i], v.res.FirstKey()
	c.Done = func(reply []int64, err error) { v.onReply(fl, reply, err) }
	t.add(func() {
		if len(unheard) > 0 { // its server may run them after this call
			void := v.settle(unheard, 0)
			v.mu.Lock()
			s.notBefore = max(s.notBefore, void)
			v.mu.Unlock()
		}
		if err := server.away(key); err != nil {
			v.onReply(fl, nil, call.NotSent(err))
			return
		}
		server.start(context.Background(), c)
	})
}

// abandon gives back all that the voter has, and has it begin anew with its next call. Called with
// the lock.
func (v *voter) abandon(t *todo) {
	if v.phase != wanting {
		return
	}
	v.phase = resting
	v.forget()
	for i := range v.seats {
		if s := &v.seats[i]; s.touched {
			v.leaveAlone(i, v.member, t)
		}
	}
	v.stopTimer()
}

// leaveAlone gives back what one server may have given to a member, with nobody who waits for the
// answer. Called with the lock.
func (v *voter) leaveAlone(i int, member string, t *todo) {
	s := &v.seats[i]
	flights, copies := slices.Clone(s.flights), s.copies // a late reply takes its flight off the list
	until := time.Now().Add(voidAfter + v.terms.TTL)
	server := v.f.servers[i]
	t.add(func() {
		l := straggler{key: v.res.FirstKey(), until: until, prepare: func() *call.Call {
			return v.res.leave(member, v.settle(flights, copies), 0, nil)
		}}
		if server.client.Away(l.key) {
			server.leaveLater(l)
			return
		}
		server.giveBack(l)
	})
}

// settle withdraws calls that are not sent yet, and returns the server time (µs) until which the
// others may still arrive. Called without the lock: a call that is withdrawn gets its outcome.
func (v *voter) settle(flights []*flight, copies int64) int64 {
	for _, fl := range flights {
		if !fl.c.Withdraw() {
			copies = max(copies, fl.void)
		}
	}
	return copies
}
