package lease

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// What the tests of this package look at from within.

// Queued is how many waiters the handle has in queues.
func (m *Manager) Queued() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.groups {
		n += len(g.waiters)
	}
	return n
}

// AskAll asks for all waiters at once.
func (m *Manager) AskAll() { m.subscribed() }

func (m *Manager) Message(text string) { m.message(text) }
func (m *Manager) LastSeq() uint64     { return m.seq.Load() }
func (m *Manager) MissClock(at time.Time) {
	now := time.Now()
	m.client.Learn("", call.Sample{Micros: at.UnixMicro(), Sent: now, Got: now})
}

// ClockIsOffBy is the server's clock as the handle knows it, less that of the test.
func (m *Manager) ClockIsOffBy() time.Duration {
	us, _ := m.client.Now("")
	return time.Duration(us-time.Now().UnixMicro()) * time.Microsecond
}

// Renewed hands a lease the reply to a renewal.
func (l *Lease) Renewed(sent time.Time, reply []int64, err error) {
	c := l.a.req.Renew(protocol.RenewOptions{Term: time.Second})
	c.Sent = sent
	l.a.onRenewed(c, time.Second, reply, err)
}

// Deliver hands the handle a grant that came in a reply.
func (m *Manager) Deliver(r protocol.Result, sent time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deliver([]protocol.Result{r}, m.moment(sent))
}

// Heard is a waiter of a test, in a queue that no server knows.
type Heard struct{ a *attempt }

// Wait makes a waiter for an attempt of res, which asks for nothing by itself.
func (m *Manager) Wait(res protocol.Resource, seq uint64) Heard {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	a := m.newAttempt(res, Attempt{Permits: 1, Limit: 1, Wait: true})
	a.seq, a.life.State, a.state, a.wake = seq, life.Waiting, life.Waiting, make(chan struct{}, 1)
	a.group = &group{m: m, res: res, waiters: []*attempt{a}}
	a.group.learn(&protocol.Reply{Now: time.Now().UnixMicro()}, now, now)
	m.attempts[seq] = a
	return Heard{a}
}

// Request is the waiter's.
func (h Heard) Request() protocol.Request { return h.a.req }

// Verdict is what the waiter was told since the last call, and until when it holds.
func (h Heard) Verdict() (r protocol.Result, until time.Time, told bool) {
	m := h.a.m
	select {
	case <-h.a.wake:
	default:
		return r, until, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch h.a.life.State {
	case life.Holding:
		return protocol.Result{Outcome: life.Outcome{Code: life.Granted}, Token: h.a.token}, m.time(h.a.life.Deadline), true
	case life.Leaving, life.Over:
		return *h.a.heard, until, true
	}
	return r, until, true
}

// Forget ends the waiter.
func (h Heard) Forget() { (&caller{m: h.a.m, at: h.a}).leave() }

// Asked hands the waiter's group the reply to an ask.
func (h Heard) Asked(r protocol.Result) {
	h.a.group.onAsked([]*attempt{h.a}, &call.Call{Sent: time.Now()}, &protocol.Reply{Now: time.Now().UnixMicro(), Waiters: []protocol.Result{r}})
}

// EnterFails has one more enter of the lease end with err.
func (l *Lease) EnterFails(err error) {
	c := &caller{m: l.a.m, at: l.a}
	c.prepare(0).onDone(nil, err)
}

// DueNow makes a renewal due and returns how many calls that causes. They are not sent, and so
// count as queued.
func (l *Lease) DueNow() int {
	l.RenewNow()
	calls, _, _ := l.a.Due(time.Now(), nil)
	return len(calls)
}

// DueNow does the same with the ask of the waiter's group.
func (h Heard) DueNow() int {
	calls, _, _ := h.a.group.Due(time.Now(), nil)
	return len(calls)
}

// Hint hints the waiter's group, and returns when it asks next.
func (h Heard) Hint(at time.Time) time.Time {
	m := h.a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	h.a.group.asking.Hint(m.moment(at))
	return m.time(h.a.group.asking.Next(0))
}

// LeavesDue returns how many leaves are due if the schedule looks twice at a lease that is to
// be given back, while the first of them is queued.
func (m *Manager) LeavesDue(res protocol.Resource) (n int) {
	a := m.newAttempt(res, Attempt{Permits: 1, Limit: 1})
	now := m.now()
	a.life.Send()
	a.life.Leave(now)
	a.life.Detach(now+life.VoidAfter, now)
	for i := range 2 {
		calls, _, _ := a.Due(time.Now().Add(time.Duration(i)*time.Second), nil)
		n += len(calls)
	}
	return n
}

// AsksAfterJoin reports whether a waiter whose enter was sent before a reply was lost asks at once
// when it joins its group.
func (m *Manager) AsksAfterJoin(res protocol.Resource, lost bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	a := m.newAttempt(res, Attempt{Permits: 1, Limit: 1, Wait: true})
	a.life.State, a.state = life.Waiting, life.Waiting
	if lost {
		m.replyLost(res)
	}
	a.join(&protocol.Reply{Now: time.Now().UnixMicro()}, now, m.now())
	hinted := a.group.asking.Next(0) <= m.now()
	a.leaveGroup()
	return hinted
}

// slowNow makes the goroutine stand still after each Now.
type slowNow struct{ Servers }

func (c slowNow) Now(key string) (us int64, wait *call.Question) {
	us, wait = c.Servers.Now(key)
	time.Sleep(time.Second)
	return us, wait
}

func (m *Manager) StandsStill() { m.client = slowNow{m.client} }

// EndUnheard makes the server say that the lease is gone, as it is right before its Context ends.
func (l *Lease) EndUnheard() {
	l.a.m.mu.Lock()
	defer l.a.m.mu.Unlock()
	gone := &protocol.Result{Outcome: life.Outcome{Code: life.Gone}}
	l.a.after(l.a.life.OnRenew(&gone.Outcome, time.Second, 0, l.a.m.now()), gone)
}
