package lease

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"
)

// deliver passes on grants that came in a reply to a call sent at sent.
func (m *Manager) deliver(grants []engine.Grant, sent time.Time) {
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
			m.settle(w, event{kind: refused, limit: g.Refused})
		default:
			m.settle(w, event{kind: granted, deadline: sent.Add(g.Term - margin(g.Term)), token: g.Token})
		}
	}
}

// message takes a grant that came through the inbox.
func (m *Manager) message(payload string) {
	msg, err := engine.ParseMessage(payload)
	if err != nil {
		return // not of this version; the next ask tells
	}
	m.mu.Lock()
	w := m.waiters[msg.Seq]
	if w != nil && w.group == nil {
		// No clock to judge it by yet, nor the token of the load that is awaited.
		if w.early == nil || w.early.Token <= msg.Token {
			w.early = &msg
		}
		w = nil
	}
	m.mu.Unlock()
	if w != nil {
		m.believe(w, msg)
	}
}

// believe settles a waiter by a message, within the term that it names: counted
// from the grant by the server's clock, as the last exchange showed it, and
// never longer than the term from now, should that clock have jumped. A message
// that comes too late for that makes the group ask.
func (m *Manager) believe(w *waiter, msg engine.Message) {
	now := time.Now()
	m.mu.Lock()
	g := w.group
	if g == nil || m.waiters[w.req.Seq] != w {
		m.mu.Unlock()
		return
	}
	if w.req.Flight || msg.Landed != nil {
		// Loads have results and locks have grants. The scripts send no other;
		// whoever else may publish here must not end a wait as if it was held.
		if w.req.Flight && msg.Landed != nil {
			m.land(w, msg)
		}
		m.mu.Unlock()
		return
	}
	from := g.clock.earliest(msg.At)
	if from.After(now) {
		from = now
	}
	term := min(msg.Term, w.req.TTL) // for the same reason
	deadline := from.Add(term - margin(term))
	switch {
	case msg.Refused != 0:
		m.settle(w, event{kind: refused, limit: msg.Refused})
	case deadline.After(now):
		m.settle(w, event{kind: granted, deadline: deadline, token: msg.Token})
	default:
		m.mu.Unlock()
		m.loop.Put(&g.entry, g, now, 0)
		return
	}
	m.mu.Unlock()
}

// land settles a waiter of a flight by what its load came to. A message about
// another load, which it waited for before, is old. Called with the lock.
func (m *Manager) land(w *waiter, msg engine.Message) {
	switch {
	case msg.Token != w.req.Awaits:
	case msg.Landed.Freed:
		m.ungroup(w)
		w.tell(event{kind: enterAgain})
	default:
		m.settle(w, event{kind: landed, token: msg.Token, record: msg.Landed})
	}
}

// settle gives a waiter its last event. Called with the lock.
func (m *Manager) settle(w *waiter, e event) {
	delete(m.waiters, w.req.Seq)
	m.ungroup(w)
	w.tell(e)
}

// forget ends a waiter of which nothing is left in Redis.
func (m *Manager) forget(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiters, w.req.Seq)
	m.ungroup(w)
}

// ungroup takes a waiter out of its group. A group left empty stays for the next
// waiter until it is due. Called with the lock.
func (m *Manager) ungroup(w *waiter) {
	g := w.group
	if g == nil {
		return
	}
	w.group = nil
	delete(g.waiters, w.req.Seq)
	m.inbox.Unuse()
}
