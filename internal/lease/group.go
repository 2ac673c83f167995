package lease

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// A group holds the waiters of this handle that are in the same queue. One ask gives a sign of
// life for all of them and finds out what became of them. A group is scheduled as long as it
// is on the manager's list.
type group struct {
	m     *Manager
	res   Resource
	entry schedule.Entry

	// Guarded by the manager's lock.
	waiters      map[uint64]*waiter
	state        State
	clock        call.Sample  // of the server that has this resource
	asked        time.Time    // when the last sign of life was sent
	firstEnd     time.Time    // when the first lease ends, if it is not renewed; zero: no lease is held
	hinted       time.Time    // when to ask because of a hint; zero: no hint has come since asked
	asks         []*call.Call // the last round; see Due
	failures     int          // consecutive asks without an answer
	failingSince time.Time
}

const (
	// askPatience is how long waiters put up with a server that does not answer. Their tickets
	// keep their places through a failover of that length, and no longer.
	askPatience = 10 * time.Second
	// minAskPause is the shortest time between two asks if the second is due because a lease
	// ends.
	minAskPause = 20 * time.Millisecond
)

// joinGroup puts a waiter into its group after its enter was answered "queued".
func (w *waiter) joinGroup(clock call.Sample, state State) {
	m, name := w.m, w.res.FirstKey()
	m.mu.Lock()
	w.state = &state
	if m.waiters[w.seq] != w {
		m.mu.Unlock()
		return // its verdict came before the reply, and has been delivered
	}
	g := m.groups[name]
	if g == nil {
		g = &group{m: m, res: w.res, waiters: map[uint64]*waiter{}}
		m.groups[name] = g
	}
	if len(g.waiters) == 0 {
		g.asked = clock.Sent // the waiter's enter was a sign of life
	}
	g.waiters[w.seq] = w
	w.group = g
	if state.Total > 0 {
		w.keyState = &state
	}
	g.learn(clock, state)
	if !m.missed.Before(clock.Sent) {
		g.hint(clock.Got) // the ask that followed the loss ran before this waiter joined
	}
	early := w.earlyMessage
	w.earlyMessage = ""
	if !m.inbox.Watch(name).Before(clock.Sent) {
		g.hint(clock.Got) // a message may have been sent before the subscription existed
	}
	at := g.nextAsk()
	m.mu.Unlock()
	m.loop.Put(&g.entry, g, at, 0)
	if early != "" {
		m.believe(w, w.seq, early)
	}
}

// leaveGroup takes a waiter out of its group. A group that is empty now stays for the next
// waiter until it is due. Called with the manager's lock.
func (w *waiter) leaveGroup() {
	if w.group == nil {
		return
	}
	delete(w.group.waiters, w.seq)
	w.group, w.leftGroup = nil, time.Now()
	w.m.inbox.Unwatch(w.res.FirstKey())
}

// learn stores the state of the resource that a reply reported. Called with the manager's
// lock.
func (g *group) learn(clock call.Sample, state State) {
	g.clock, g.state, g.failures = clock, state, 0
	g.state.AsOf = clock.Got
	g.firstEnd = time.Time{}
	if state.Earliest > 0 {
		g.firstEnd = clock.Got.Add(state.Earliest + 2*time.Millisecond)
	}
}

// silent reports whether the server does not answer any more: its last answer is older than
// the usual interval of asks, and asks that were sent since then have had no answer for a
// while. Called with the manager's lock.
func (g *group) silent() bool {
	return g.asked.After(g.clock.Sent) && time.Since(g.clock.Got) > AskEvery+silence
}

// nextAsk returns when to ask next: after the usual interval, or earlier when the first lease
// ends (a crashed holder's permit is free right then) or when a hint has called for an ask. A
// new waiter or the reply to an earlier ask does not delay an ask that a hint called for.
// Called with the manager's lock.
func (g *group) nextAsk() time.Time {
	at := g.asked.Add(AskEvery*9/10 + rand.N(AskEvery/10))
	if !g.firstEnd.IsZero() && g.firstEnd.Before(at) {
		at = g.firstEnd
		if soonest := g.asked.Add(minAskPause); at.Before(soonest) {
			at = soonest
		}
	}
	if !g.hinted.IsZero() && g.hinted.Before(at) {
		at = g.hinted
	}
	return at
}

// hint makes the group ask at the time at, or earlier if that was planned already. An ask that
// is queued or under way need not tell what the hint is about: a hint is remembered, and causes
// another one. Called with the manager's lock.
func (g *group) hint(at time.Time) {
	if g.hinted.IsZero() || at.Before(g.hinted) {
		g.hinted = at
	}
}

// Due asks for all waiters of the group. While calls of the last round are queued or not late,
// it waits for them.
func (g *group) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	m := g.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(g.waiters) == 0 {
		if name := g.res.FirstKey(); m.groups[name] == g {
			delete(m.groups, name)
		}
		return calls, time.Time{}, 0
	}
	for _, c := range g.asks {
		if until, pending := c.Pending(now, AskEvery/3, AskEvery); pending {
			return calls, until, 0
		}
	}
	all := make([]*waiter, 0, len(g.waiters))
	for _, w := range g.waiters {
		all = append(all, w)
	}
	g.asked, g.hinted, g.asks = now, time.Time{}, g.asks[:0]
	for len(all) > 0 {
		some := all[:min(len(all), MaxAsk)]
		all = all[len(some):]
		g.asks = append(g.asks, g.ask(some))
	}
	return append(calls, g.asks...), now.Add(AskEvery / 3), 0
}

// ask prepares the ask for some waiters. Called with the manager's lock.
func (g *group) ask(waiters []*waiter) *call.Call {
	requests := make([]Request, len(waiters))
	seqs := make([]uint64, len(waiters))
	for i, w := range waiters {
		requests[i], seqs[i] = w.req, w.seq
	}
	c := g.res.Ask(requests)
	c.Rank = call.SignOfLife
	c.Done = func(ints []int64, err error) {
		var r AskReply
		if err == nil {
			r, err = g.res.ReadAsk(c, ints, requests)
		}
		g.m.reached(g.res, err)
		if err != nil {
			g.onAskFailed(err)
			return
		}
		g.onAsked(seqs, c.Sent, r)
	}
	return c
}

// onAsked processes the reply to an ask for the attempts seqs, sent at the time sent.
func (g *group) onAsked(seqs []uint64, sent time.Time, r AskReply) {
	m := g.m
	clock := call.Sample{Micros: r.Now, Sent: sent, Got: time.Now()}
	m.client.Learn(g.res.FirstKey(), clock)
	m.deliver(r.Grants, sent)
	m.mu.Lock()
	g.learn(clock, r.State)
	if g.asked.Before(sent) {
		g.asked = sent // the wait in the queue of the server does not count
	}
	for i, seq := range seqs {
		w := g.waiters[seq]
		if w == nil {
			continue // settled in the meantime
		}
		s := r.Standings[i]
		if s.State != nil {
			w.keyState = s.State
			w.keyState.AsOf = clock.Got
		}
		switch s.Code {
		case Granted:
			w.settle(Verdict{Code: Granted, Deadline: deadline(sent, s.Term), Token: s.Token})
		case Queued:
		case Answered:
			w.settle(Verdict{Code: Answered, Answer: s.Answer})
		default:
			w.leaveGroup()
			w.tell(Verdict{Code: Gone, Lapsed: true})
		}
	}
	if r.More {
		g.hint(clock.Got)
	}
	at, idle := g.nextAsk(), len(g.waiters) == 0
	m.mu.Unlock()
	if !idle { // otherwise its last entry in the schedule, if any, removes it
		m.loop.Put(&g.entry, g, at, 0)
	}
}

// onAskFailed handles an ask that failed. The waiters keep waiting for up to askPatience,
// unless the server refuses the ask.
func (g *group) onAskFailed(err error) {
	m := g.m
	m.mu.Lock()
	if g.failures++; g.failures == 1 {
		g.failingSince = time.Now()
	}
	if call.Classify(err) == call.Refused || time.Since(g.failingSince) > askPatience {
		for _, w := range g.waiters {
			w.settle(Verdict{Code: Failed, Err: err})
		}
	}
	pause, idle := call.Backoff(min(g.failures, 5))+50*time.Millisecond, len(g.waiters) == 0
	m.mu.Unlock()
	if !idle {
		m.loop.Put(&g.entry, g, time.Now().Add(pause), 0)
	}
}

// askSoon asks for the waiters of a resource at once. It is called after a reply was lost that
// may have carried a grant for one of them.
func (m *Manager) askSoon(res Resource) {
	m.mu.Lock()
	m.missed = time.Now()
	m.mu.Unlock()
	m.askFor(res.FirstKey())
}

// askAll asks for all waiters at once, because messages may have been missed.
func (m *Manager) askAll() {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.groups))
	m.mu.Unlock()
	for _, key := range all {
		m.askFor(key)
	}
}

// askFor asks at once for the waiters of a key (a Resource.FirstKey), because messages about
// it may have been missed.
func (m *Manager) askFor(key string) {
	now := time.Now()
	m.mu.Lock()
	g := m.groups[key]
	if g != nil {
		g.hint(now)
	}
	m.mu.Unlock()
	if g != nil {
		m.loop.Put(&g.entry, g, now, 0)
	}
}

// deliver passes on the grants in the reply to a call that was sent at the time sent.
func (m *Manager) deliver(grants []Grant, sent time.Time) {
	if len(grants) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range grants {
		w := m.waiters[g.Seq]
		switch {
		case w == nil: // it left; its leave is under way
		case g.Refused != 0:
			w.settle(Verdict{Code: TooMany, Limit: g.Refused})
		default:
			w.settle(Verdict{Code: Granted, Deadline: deadline(sent, g.Term), Token: g.Token})
		}
	}
}

// message handles a message from the inbox. Its first word is the sequence number of the
// attempt that it is for. A hint of a revocation has "R" before that number.
func (m *Manager) message(text string) {
	text, revoked := strings.CutPrefix(text, "R ")
	word, _, _ := strings.Cut(text, " ")
	seq, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return // from another version; the next ask tells the waiter
	}
	if revoked {
		m.hint(seq)
		return
	}
	m.mu.Lock()
	w := m.waiters[seq]
	if w != nil && w.group == nil {
		// The reply to the enter has not arrived yet, and the message can only be judged by
		// the server's clock in that reply. The last message counts.
		w.earlyMessage = text
		w = nil
	}
	m.mu.Unlock()
	if w != nil {
		m.believe(w, seq, text)
	}
}

// believe settles a waiter by a message. Anybody with access to the inbox may have published
// it, so it is trusted only within limits. The lease lasts at most for the TTL that was asked
// for. It is counted from the time of the grant by the server's clock, as the last exchange
// showed that clock, and never from a later time than now, in case that clock has jumped. If
// the message is too old for that, the group asks instead.
func (m *Manager) believe(w *waiter, seq uint64, text string) {
	now := time.Now()
	m.mu.Lock()
	g := w.group
	if g == nil || w.seq != seq {
		m.mu.Unlock()
		return // the attempt has its verdict
	}
	v, ok := w.req.ReadMessage(text)
	switch {
	case !ok:
	case v.Code == Gone:
		w.leaveGroup()
		w.tell(v)
	case v.Code != Granted:
		w.settle(v)
	default:
		from := g.clock.Earliest(v.GrantedAt)
		if from.After(now) {
			from = now
		}
		if v.Deadline = deadline(from, min(v.Term, m.cfg.TTL)); v.Deadline.After(now) {
			w.settle(v)
			break
		}
		g.hint(now)
		m.mu.Unlock()
		m.loop.Put(&g.entry, g, now, 0)
		return
	}
	m.mu.Unlock()
}

// Waits reports whether a caller of this handle waits in the queue of key.
func (m *Manager) Waits(key string) bool {
	res, err := m.Resource(key)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.groups[res.FirstKey()]; g != nil {
		for _, w := range g.waiters {
			if w.Key == key {
				return true
			}
		}
	}
	return false
}
