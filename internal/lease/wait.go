package lease

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/renew"
)

// waiter is one attempt that may be granted by others.
type waiter struct {
	req   *engine.Request
	told  chan struct{} // of one: event is there
	stray int64         // server µs until which a copy of its enter may arrive; its acquisition's own

	// Guarded by the manager's lock.
	event event
	group *group          // once it is queued
	early *engine.Message // a message that came before the queued reply
}

type kind int

const (
	waitOn     kind = iota
	granted         // deadline and token
	refused         // limit: it can never be served
	enterAgain      // its place is gone
	failed          // err
	found           // of a flight: code and text tell what was there already
	landed          // of a flight: what the load of token came to
)

// event is what became of a waiter.
type event struct {
	kind     kind
	deadline time.Time
	token    uint64
	limit    int
	err      error
	code     engine.Code
	text     string
	record   *engine.Record
}

// tell hands a waiter its event. Where one is outstanding it is enough. Called
// with the lock.
func (w *waiter) tell(e event) {
	select {
	case w.told <- struct{}{}:
		w.event = e
	default:
	}
}

// heard is the event that a waiter was told of.
func (m *Manager) heard(w *waiter) event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.event
}

// wait waits in the queue for the waiter's event.
func (q *acquisition) wait(ctx context.Context) (event, *ended) {
	select {
	case <-q.w.told:
		return q.m.heard(q.w), nil
	case <-ctx.Done():
		return event{}, q.left(ctx.Err())
	case <-q.m.closing:
		return event{}, q.left(leasehold.ErrClosed)
	}
}

// group is the waiters that the handle has in one queue. Together they give a
// sign of life, and ask what became of them. It is scheduled as long as it is
// one of the manager's groups.
type group struct {
	m     *Manager
	res   *engine.Resource
	entry renew.Entry

	// Guarded by the manager's lock.
	waiters  map[uint64]*waiter
	state    engine.State
	clock    sample    // of this resource's server
	asked    time.Time // when the last sign of life was sent
	earliest time.Time // when the first lease ends, if nobody renews it; zero = none
	failures int       // asks in a row without an answer
	since    time.Time // of the failures
}

// askPatience is how long waiters put up with a server that does not answer.
// Their place is kept (by their ticket) over a failover, and no longer.
const askPatience = 10 * time.Second

// queue puts a waiter whose enter was answered "queued" into its group.
func (m *Manager) queue(w *waiter, clock sample, r engine.EnterReply) {
	name := w.req.Holders()
	m.mu.Lock()
	if m.waiters[w.req.Seq] != w {
		m.mu.Unlock()
		return // its grant was faster than the reply
	}
	g := m.groups[name]
	if g == nil {
		g = &group{m: m, res: w.req.Resource, waiters: map[uint64]*waiter{}}
		m.groups[name] = g
	}
	if len(g.waiters) == 0 {
		g.asked = clock.sent // its enter was a sign of life
	}
	g.waiters[w.req.Seq] = w
	m.inbox.Use()
	w.group = g
	w.req.Awaits = r.Token
	g.heard(clock, r.State)
	at := g.next()
	if !m.missed.Before(clock.sent) {
		at = clock.got // what was asked because of that may have left this one out
	}
	early := w.early
	w.early = nil
	m.mu.Unlock()
	m.loop.Put(&g.entry, g, at, 0)
	if early != nil {
		m.believe(w, *early)
	}
}

// heard keeps what a reply said of the resource. Called with the lock.
func (g *group) heard(clock sample, state engine.State) {
	g.clock, g.state, g.failures = clock, state, 0
	g.earliest = time.Time{}
	if state.Earliest > 0 {
		g.earliest = clock.got.Add(state.Earliest + 2*time.Millisecond)
	}
}

// next says when to ask: by the interval, or when the first lease ends, since a
// dead holder's permit is free right then. Called with the lock.
func (g *group) next() time.Time {
	at := g.asked.Add(engine.AskEvery*9/10 + rand.N(engine.AskEvery/10))
	if !g.earliest.IsZero() && g.earliest.Before(at) {
		at = g.earliest
		if soonest := g.asked.Add(20 * time.Millisecond); at.Before(soonest) {
			at = soonest
		}
	}
	return at
}

// Due asks for all waiters of the group.
func (g *group) Due(now time.Time, calls []*engine.Call) ([]*engine.Call, time.Time, time.Duration) {
	m := g.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(g.waiters) == 0 {
		if name := g.res.Holders(); m.groups[name] == g {
			delete(m.groups, name)
		}
		return calls, time.Time{}, 0
	}
	all := make([]*engine.Request, 0, len(g.waiters))
	for _, w := range g.waiters {
		all = append(all, w.req)
	}
	node := m.eng.Node(g.res)
	g.asked = now
	for len(all) > 0 {
		some := all[:min(len(all), engine.MaxAsk)]
		all = all[len(some):]
		c := g.res.Ask(node, some)
		c.Done = func(v []int64, err error) { g.answered(some, now, c, v, err) }
		calls = append(calls, c)
	}
	return calls, now.Add(engine.AskEvery / 3), 0
}

// answered takes the outcome of an ask.
func (g *group) answered(asked []*engine.Request, sent time.Time, c *engine.Call, v []int64, err error) {
	m := g.m
	var r engine.AskReply
	if err == nil {
		r, err = g.res.ParseAsk(c, v, len(asked))
	}
	if err != nil {
		g.unanswered(err)
		return
	}
	clock := m.learn(r.Now, sent, time.Now())
	m.deliver(r.Grants, sent)
	m.mu.Lock()
	g.heard(clock, r.State)
	for i, req := range asked {
		w := g.waiters[req.Seq]
		if w == nil || w.req != req {
			continue // settled meanwhile
		}
		switch s := r.Standings[i]; {
		case s.Code == engine.Granted:
			m.settle(w, event{kind: granted, deadline: sent.Add(s.Remaining - margin(s.Remaining)), token: s.Token})
		case s.Code == engine.Queued:
			w.req.Awaits = max(w.req.Awaits, s.Token)
		case g.res.Flight && s.Token != w.req.Awaits:
			// Of the load that it waited for before it entered again.
		case s.Code == engine.Found:
			if token, record, err := engine.ParseRecord(s.Text); err == nil {
				m.settle(w, event{kind: landed, token: token, record: &record})
				continue
			}
			fallthrough
		default:
			m.ungroup(w)
			w.tell(event{kind: enterAgain})
		}
	}
	at, idle := g.next(), len(g.waiters) == 0
	if r.More {
		at = time.Now()
	}
	m.mu.Unlock()
	if !idle { // else its last entry in the schedule, if there is one, ends it
		m.loop.Put(&g.entry, g, at, 0)
	}
}

// unanswered takes an ask's error: the waiters go on for a while, unless the
// server will not have them.
func (g *group) unanswered(err error) {
	m := g.m
	m.mu.Lock()
	if g.failures++; g.failures == 1 {
		g.since = time.Now()
	}
	if engine.Classify(err) == engine.Refused || time.Since(g.since) > askPatience {
		for _, w := range g.waiters {
			m.settle(w, event{kind: failed, err: err})
		}
	}
	pause, idle := backoff(min(g.failures, 5))+50*time.Millisecond, len(g.waiters) == 0
	m.mu.Unlock()
	if !idle {
		m.loop.Put(&g.entry, g, time.Now().Add(pause), 0)
	}
}

// askSoon asks for the waiters of a resource at once: a reply that may have
// carried a grant for one of them was lost.
func (m *Manager) askSoon(res *engine.Resource) {
	m.mu.Lock()
	m.missed = time.Now()
	g := m.groups[res.Holders()]
	m.mu.Unlock()
	if g != nil {
		m.loop.Put(&g.entry, g, time.Now(), 0)
	}
}

// askAll asks for all waiters at once: messages may have been missed.
func (m *Manager) askAll() {
	m.mu.Lock()
	m.missed = time.Now()
	var all []*group
	for _, g := range m.groups {
		all = append(all, g)
	}
	m.mu.Unlock()
	for _, g := range all {
		m.loop.Put(&g.entry, g, time.Now(), 0)
	}
}
