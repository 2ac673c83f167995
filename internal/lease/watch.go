package lease

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// How a holder learns that its lease was revoked: the revoker sends a hint. Every client that
// may publish on the inbox can forge one. So a hint only brings the next renewal forward, whose
// answer says "revoked", and why. Without any hint, the next renewal or the release hears it.

const (
	// watchAfter is the age at which a lease is worth a subscription.
	watchAfter = 100 * time.Millisecond
	// renewEach spaces out the renewals that new subscriptions cause, to 1,000 leases a second:
	// after a failover, all leases at once would get in the way of other calls. Those that are due
	// within a short part of the TTL share a round trip.
	renewEach = time.Millisecond
	// gatherMissed is how long a handle collects keys with new subscriptions before it looks
	// through its leases once for all of them.
	gatherMissed = 20 * time.Millisecond
)

// A watch is the one schedule entry of a handle that makes sure that holders hear hints. It
// subscribes to the keys of leases that are older than watchAfter, and renews leases whose
// hints may have been missed. The manager's lock guards it.
type watch struct {
	m     *Manager
	entry schedule.Entry

	scheduled bool
	missed    map[string]bool // keys (a Resource.FirstKey) whose subscription is new; "": all
	nextRenew life.Moment     // when the next such renewal may be sent
}

// add makes sure that the holder of a lease that has just begun hears hints. Called with the lock.
func (w *watch) add(a *attempt) {
	if !w.scheduled {
		w.scheduled = true
		w.m.loop.Put(&w.entry, w, w.m.time(a.grantAt+watchAfter), watchAfter/4)
	}
}

// Due looks through the leases once and does all that is due.
func (w *watch) Due(t time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	oldest := life.Never // when the oldest lease that is still too young began
	now := m.moment(t)
	w.nextRenew = max(w.nextRenew, now)
	for _, a := range m.attempts {
		renew, key := false, a.res.FirstKey()
		switch {
		case a.life.State != life.Holding:
		case a.watched:
			renew = w.missed[""] || w.missed[key]
		case now-a.grantAt >= watchAfter:
			a.watched = true
			from := m.inbox.Watch(key)
			renew = !from.IsZero() && from.After(m.time(a.grantAt))
		default:
			oldest = min(oldest, a.grantAt)
		}
		if renew {
			a.after(a.life.OnHint(w.nextRenew), nil)
			w.nextRenew += renewEach
		}
	}
	w.missed = nil
	if w.scheduled = oldest != life.Never; !w.scheduled {
		return calls, time.Time{}, 0
	}
	return calls, m.time(oldest + watchAfter), watchAfter / 4
}

// subscribed is called on each new subscription. Messages may have been missed, so the handle
// asks for its waiters and renews its leases.
func (m *Manager) subscribed() { m.subscribedFor("") }

// subscribedFor does the same for one key (a Resource.FirstKey). A handle on a Cluster has a
// subscription for each key, and thousands may be new at once, so keys are collected for a
// moment before the leases are looked through.
func (m *Manager) subscribedFor(key string) {
	if m.keeper != nil {
		m.keeper.Listens(key)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if key == "" {
		for name := range m.groups {
			m.askFor(name)
		}
	}
	m.askFor(key)
	w := &m.watch
	if m.held == 0 {
		return
	}
	if w.missed == nil {
		w.missed = map[string]bool{}
		w.scheduled = true
		m.loop.Put(&w.entry, w, time.Now().Add(gatherMissed), 0)
	}
	w.missed[key] = true
}
