package lease

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// What the tests of this package look at from within.

const VoidAfter = voidAfter

// SettingNumber is the number of a setting that is called when the server's clock shows at, in µs.
func (m *Manager) SettingNumber(at int64) int64 { return m.settingNumber(at) }

func Margin(term time.Duration) time.Duration { return margin(term) }

// Queued is how many waiters the handle has in queues.
func (m *Manager) Queued() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.groups {
		n += len(g.waiters)
	}
	return n
}

// AskedSince reports whether a group was asked after t, and answered.
func (m *Manager) AskedSince(t time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.groups {
		if g.asked.After(t) && g.clock.Got.After(g.asked) {
			return true
		}
	}
	return false
}

func (m *Manager) AskAll()             { m.askAll() }
func (m *Manager) Message(text string) { m.message(text) }
func (m *Manager) LastSeq() uint64     { return m.seq.Load() }
func (m *Manager) Handle() string      { return m.handle }
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
	c := l.req.Renew(time.Second, 0)
	c.Sent = sent
	l.onRenewed(c, reply, err)
}

// Deliver hands the handle a grant that came in a reply.
func (m *Manager) Deliver(g Grant, sent time.Time) { m.deliver([]Grant{g}, sent) }

// Heard is a waiter of a test, in a queue that no server knows.
type Heard struct{ w *waiter }

// Wait makes a waiter for an attempt of res, which asks for nothing by itself.
func (m *Manager) Wait(res Resource, seq uint64) Heard {
	now := time.Now()
	g := &group{m: m, res: res, waiters: map[uint64]*waiter{}, asked: now, clock: call.Sample{Micros: now.UnixMicro(), Sent: now, Got: now}}
	w := &waiter{m: m, res: res, group: g, seq: seq, wake: make(chan struct{}, 1)}
	w.req = res.Request(Terms{Handle: m.handle, Seq: seq, Permits: 1, TTL: m.cfg.TTL, Limit: 1})
	g.waiters[seq] = w
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiters[seq] = w
	return Heard{w}
}

// Request is the waiter's.
func (h Heard) Request() Request { return h.w.req }

// Verdict is what the waiter was told since the last call.
func (h Heard) Verdict() (v Verdict, told bool) {
	select {
	case <-h.w.wake:
		return h.w.heard(), true
	default:
		return Verdict{}, false
	}
}

// Forget ends the waiter.
func (h Heard) Forget() { h.w.forget() }

// Asked hands the waiter's group the reply to an ask.
func (h Heard) Asked(s Standing) {
	h.w.m.mu.Lock()
	g := h.w.group
	h.w.m.mu.Unlock()
	g.onAsked([]uint64{h.w.seq}, time.Now(), AskReply{Now: time.Now().UnixMicro(), Standings: []Standing{s}})
}

// DueNow makes a renewal due and returns how many calls that causes. They are not sent, and so
// count as queued.
func (l *Lease) DueNow() int {
	l.mu.Lock()
	l.renewAt = time.Now()
	l.mu.Unlock()
	calls, _, _ := l.Due(time.Now(), nil)
	return len(calls)
}

// DueNow does the same with the ask of the waiter's group.
func (h Heard) DueNow() int {
	calls, _, _ := h.w.group.Due(time.Now(), nil)
	return len(calls)
}

// Hint hints the waiter's group, and returns when it asks next.
func (h Heard) Hint(at time.Time) time.Time {
	h.w.m.mu.Lock()
	defer h.w.m.mu.Unlock()
	h.w.group.hint(at)
	return h.w.group.nextAsk()
}

// LeavesDue returns how many leaves are due if the schedule looks twice at a lease that is to
// be given back, while the first of them is queued.
func (m *Manager) LeavesDue(res Resource, req Request) (n int) {
	g := m.newGiveBack(res, req, 0)
	for range 2 {
		calls, _, _ := g.Due(time.Now(), nil)
		n += len(calls)
	}
	return n
}
