package lease

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// A group holds the waiters of this handle that are in the same queue. One ask gives a sign of
// life for all of them and finds out what became of them. A group is scheduled as long as it is
// on the manager's list. The manager's lock guards it.
type group struct {
	m     *Manager
	res   protocol.Resource
	entry schedule.Entry

	asking  life.Asking
	waiters []*attempt // each knows its place
	state   protocol.State
	clock   call.Sample  // of the server that has this resource
	asks    []*call.Call // those of the last round without an outcome; see Due
}

// join puts an attempt into its group after its enter was answered "queued". Called with the lock.
func (a *attempt) join(r *protocol.Reply, sent, got life.Moment) {
	m, name := a.m, a.res.FirstKey()
	if a.ticket == 0 {
		a.ticket = r.Now
	}
	g := m.groups[name]
	if g == nil {
		g = &group{m: m, res: a.res}
		m.groups[name] = g
	}
	if len(g.waiters) == 0 {
		g.asking.Alive(sent)
	}
	a.group, a.place = g, int32(len(g.waiters))
	g.waiters = append(g.waiters, a)
	g.learn(r, sent, got)
	if a.lastState = nil; r.State.Total > 0 {
		state := g.state
		a.lastState = &state
	}
	if m.missed >= sent {
		g.asking.Hint(got) // the ask that followed the loss ran before this waiter joined
	}
	if !m.inbox.Watch(name).Before(m.time(sent)) {
		g.asking.Hint(got) // a message may have been sent before the subscription existed
	}
	g.schedule()
}

// leaveGroup takes an attempt out of its group. A group that is empty now stays for the next
// waiter until it is due. Called with the lock.
func (a *attempt) leaveGroup() {
	g := a.group
	last := len(g.waiters) - 1
	g.waiters[a.place] = g.waiters[last]
	g.waiters[a.place].place = a.place
	g.waiters[last] = nil
	g.waiters = g.waiters[:last]
	if s := a.life.State; a.lastState == nil && (s == life.Entering || s == life.Holding && !a.life.Confirms) { // its caller may give up now
		state := g.state
		a.lastState = &state
	}
	a.group, a.leftGroup = nil, a.m.now()
	a.m.inbox.Unwatch(a.res.FirstKey())
}

// seen returns the last state of the attempt's key that Redis reported, or nil if there is none.
// Called with the lock.
func (a *attempt) seen() *protocol.State {
	if a.lastState == nil && a.group != nil {
		state := a.group.state
		return &state
	}
	return a.lastState
}

// learn stores the state of the resource that a reply reported. Called with the lock.
func (g *group) learn(r *protocol.Reply, sent, got life.Moment) {
	g.state = r.State
	g.state.AsOf = g.m.time(got)
	g.clock = g.clock.Refined(call.Sample{Micros: r.Now, Sent: g.m.time(sent), Got: g.state.AsOf})
	g.asking.Heard(sent, got, r.State.Earliest)
}

// schedule puts the group into the schedule for its next ask. Called with the lock.
func (g *group) schedule() {
	if len(g.waiters) > 0 { // otherwise its last entry in the schedule, if any, removes it
		g.m.loop.Put(&g.entry, g, g.m.time(g.asking.Next(rand.N(life.AskEvery/10))), 0)
	}
}

// Due asks for all waiters of the group. While calls of the last round are queued or not late,
// it waits for them.
func (g *group) Due(t time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
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
		if until, pending := c.Pending(t, life.AskEvery/3, life.AskEvery); pending {
			return calls, until, 0
		}
	}
	g.asking.Asks(m.moment(t))
	g.asks = g.asks[:0]
	for rest := g.waiters; len(rest) > 0; {
		n := min(len(rest), protocol.MaxAsk)
		g.asks = append(g.asks, g.ask(append([]*attempt(nil), rest[:n]...)))
		rest = rest[n:]
	}
	return append(calls, g.asks...), t.Add(life.AskEvery / 3), 0
}

// ask prepares the ask for some waiters.
func (g *group) ask(waiters []*attempt) *call.Call {
	requests := make([]protocol.Request, len(waiters))
	for i, a := range waiters {
		requests[i] = a.req
	}
	c := g.res.Ask(requests)
	c.Rank = call.SignOfLife
	c.Done = func(ints []int64, err error) {
		var r protocol.Reply
		if err == nil {
			r, err = g.res.ReadAsk(c, ints, requests)
		}
		if g.m.reached(g.res, err); err != nil {
			g.onAskFailed(c, err)
			return
		}
		g.onAsked(waiters, c, &r)
	}
	return c
}

// onAsked processes the reply to the ask c for some waiters.
func (g *group) onAsked(waiters []*attempt, c *call.Call, r *protocol.Reply) {
	m, got := g.m, time.Now()
	m.client.Learn(g.res.FirstKey(), call.Sample{Micros: r.Now, Sent: c.Sent, Got: got})
	m.mu.Lock()
	defer m.mu.Unlock()
	g.forget(c)
	sent, now := m.moment(c.Sent), m.moment(got)
	m.deliver(r.Grants, sent)
	g.asking.Answered(sent)
	g.learn(r, sent, now)
	for i, a := range waiters {
		if a.group != g {
			continue // it has its verdict, or has entered again
		}
		s := &r.Waiters[i]
		if s.State != nil {
			a.lastState = s.State
			a.lastState.AsOf = got
		}
		a.news(s, true, sent)
	}
	if r.More {
		g.asking.Hint(now)
	}
	g.schedule()
}

// forget lets go of an ask that has its outcome, since it takes more memory than a waiter.
// Called with the lock.
func (g *group) forget(c *call.Call) {
	g.asks = slices.DeleteFunc(g.asks, func(one *call.Call) bool { return one == c })
}

// onAskFailed handles the ask c, which failed. The waiters keep waiting for up to askPatience,
// unless the server refuses the ask.
func (g *group) onAskFailed(c *call.Call, err error) {
	m := g.m
	m.mu.Lock()
	defer m.mu.Unlock()
	g.forget(c)
	now := m.now()
	if g.asking.Failed(call.Classify(err) == call.Refused, now) {
		r := protocol.Result{Outcome: life.Outcome{Code: life.Unanswered}, Err: err}
		for len(g.waiters) > 0 {
			g.waiters[0].news(&r, true, now)
		}
		return
	}
	g.asking.Hint(now + call.Backoff(min(g.asking.Fails, 5)) + 50*time.Millisecond)
	g.schedule()
}

// Waits returns how busy key is, if a caller of this handle waits in its queue and Redis answers; else nil.
func (m *Manager) Waits(key string) *leasehold.BusyError {
	res, err := m.Resource(key)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.groups[res.FirstKey()]; g != nil && !g.asking.Silent(m.now()) {
		for _, a := range g.waiters {
			if a.key == key {
				return m.BusyError(*a.seen())
			}
		}
	}
	return nil
}

// A script does a bounded part of the work that it finds for others. A call that stopped at such a
// bound says so, and its process goes on.

// goOn goes on where a call stopped at a bound, until all is done or a call has no answer. The
// next call of any process then goes on, at the latest a sign of life.
func (m *Manager) goOn(next func() *call.Call, read func(c *call.Call, reply []int64) (protocol.Reply, error)) error {
	for {
		c := next()
		ints, err := m.client.Do(m.client.Brief(), c)
		var r protocol.Reply
		if err == nil {
			r, err = read(c, ints)
		}
		if err != nil {
			return err
		}
		if m.Granted(r.Grants, c.Sent); !r.More {
			return nil
		}
	}
}

// handOn goes on where a leave stopped at a bound: a leave that is sent again hands on more.
func (a *attempt) handOn() {
	_ = a.m.goOn(func() *call.Call {
		a.m.mu.Lock()
		defer a.m.mu.Unlock()
		c := a.leaveCall()
		c.Confirm = call.Confirm{}
		return c
	}, func(_ *call.Call, reply []int64) (protocol.Reply, error) { return a.req.ReadLeave(reply) })
}

// goOnEntering continues the work of an enter of this handle that stopped at a bound, once at a
// time: only families with a total have such work, and each of them is one set of Redis keys.
func (m *Manager) goOnEntering(res protocol.Resource) {
	if res.GoOn(m.handle) == nil {
		m.ReplyLost(res)
		return
	}
	m.mu.Lock()
	under := m.goingOn
	m.goingOn = true
	m.mu.Unlock()
	if under {
		return
	}
	m.Go(func() {
		err := errNoAnswer // stays if a hook ends the goroutine
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.goingOn = false; err != nil {
				m.replyLost(res) // the lost reply may have carried grants to our own waiters
			}
		}()
		err = m.goOn(func() *call.Call {
			c := res.GoOn(m.handle)
			c.Rank = call.SignOfLife
			return c
		}, func(c *call.Call, reply []int64) (protocol.Reply, error) { return res.ReadAsk(c, reply, nil) })
	})
}
