package lease

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// What a handle hears of its attempts other than by their own calls: grants in other replies, messages from its inbox,
// and that some of either may have been missed.

// replyLost asks for the waiters of a resource at once, because a reply was lost that may have
// carried a grant for one of them. Called with the lock.
func (m *Manager) replyLost(res protocol.Resource) {
	m.missed = m.now()
	m.askFor(res.FirstKey())
}

// ReplyLost is replyLost without the lock.
func (m *Manager) ReplyLost(res protocol.Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replyLost(res)
}

// askFor asks at once for the waiters of a key (a Resource.FirstKey), because messages about it
// may have been missed. Called with the lock.
func (m *Manager) askFor(key string) {
	if g := m.groups[key]; g != nil {
		g.asking.Hint(m.now())
		g.schedule()
	}
}

// deliver passes on the grants in the reply to a call that was sent at the moment sent. Called
// with the lock.
func (m *Manager) deliver(grants []protocol.Result, sent life.Moment) {
	for i := range grants {
		if a := m.attempts[grants[i].Seq]; a != nil {
			a.news(&grants[i], false, sent)
		}
	}
}

// Granted passes on the grants in the reply to a call that no attempt has sent.
func (m *Manager) Granted(grants []protocol.Result, sent time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deliver(grants, m.moment(sent))
}

// message handles a message from the inbox. Its first word is the sequence number of the
// attempt that it is for. A hint of a revocation has "R" before that number.
func (m *Manager) message(text string) {
	if key, recalled := strings.CutPrefix(text, "^ "); recalled {
		if m.keeper != nil {
			m.keeper.Recalled(key)
		}
		return
	}
	text, revoked := strings.CutPrefix(text, "R ")
	word, _, _ := strings.Cut(text, " ")
	seq, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return // from another version; the next ask tells the waiter
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch a := m.attempts[seq]; {
	case a == nil:
	case a.life.State == life.Waiting && revoked:
		a.group.asking.HintLater()
		a.group.schedule()
	case a.life.State == life.Waiting:
		a.believe(text)
	default:
		// While the enter is under way, a message can not be judged: the attempt asks once it is
		// queued. A lease is renewed.
		a.after(a.life.OnHint(m.now()), nil)
	}
}

// believe takes a message about a queued attempt. Anybody with access to the inbox may have
// published it, so it is trusted only within limits. The lease lasts at most for the TTL that
// was asked for. It is counted from the time of the grant by the server's clock, as g.clock shows
// it, and never from a later time than now, in case that clock has jumped. If the message is too
// old for that, the group asks instead. Called with the lock.
func (a *attempt) believe(text string) {
	m, g := a.m, a.group
	r, ok := a.req.ReadMessage(text)
	if !ok {
		return
	}
	now := m.now()
	from := now
	if r.Code == life.Granted {
		r.Term = min(r.Term, m.cfg.TTL)
		from = min(from, m.moment(g.clock.Earliest(r.GrantedAt)))
		if from+r.Term-life.Margin(r.Term) <= now {
			g.asking.Hint(now)
			g.schedule()
			return
		}
	}
	a.news(&r, false, from)
}

// How a holder learns that its lease was revoked: the revoker sends a hint. Every client that
// may publish on the inbox can forge one. So a hint only brings the next renewal forward, and its
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

// A watch is the schedule entry of a handle that renews leases after hints may have been missed. The
// manager's lock guards it.
type watch struct {
	m         *Manager
	entry     schedule.Entry
	missed    map[string]bool // keys (a Resource.FirstKey) with a new subscription; "": all
	nextRenew life.Moment     // when the next such renewal may be sent
}

// mayMiss has a lease renewed soon, because hints may have been missed until now. Called with the lock.
func (w *watch) mayMiss(a *attempt, now life.Moment) life.Effect {
	at := max(w.nextRenew, now)
	w.nextRenew = at + renewEach
	return a.life.OnHint(at)
}

// watch makes sure that a holder hears hints, once its lease is old enough. Called with the lock.
func (a *attempt) watch(now life.Moment) {
	a.watched = true
	if from := a.m.inbox.Watch(a.res.FirstKey()); !from.IsZero() && from.After(a.m.time(a.grantAt)) {
		a.m.watch.mayMiss(a, now)
	} // else all hints are heard, or subscribed is called later
}

// Due looks once through the leases that are watched.
func (w *watch) Due(t time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.attempts {
		if a.watched && (w.missed[""] || w.missed[a.res.FirstKey()]) {
			a.after(w.mayMiss(a, m.moment(t)), nil)
		}
	}
	w.missed = nil
	return calls, time.Time{}, 0
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
		m.loop.Put(&w.entry, w, time.Now().Add(gatherMissed), 0)
	}
	w.missed[key] = true
}
