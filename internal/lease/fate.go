package lease

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// How a holder learns that its lease was revoked: the revoker sends a hint. Every client that
// may publish on the inbox can forge one. So a hint only makes the handle ask Redis for the
// fate of the attempt. Without any hint, the next renewal or the release finds the lease gone,
// and asks for its fate before it reports a loss.

// Fated is a Request that Redis can be asked about.
type Fated interface {
	// Fate prepares the call that asks what became of the attempt. It changes nothing.
	Fate() *call.Call
}

const (
	// fatePatience bounds how long the handle waits to learn why a lease is gone.
	fatePatience = 500 * time.Millisecond
	// fatePause is the shortest time between two questions that hints cause for one lease.
	// Replayed hints cost one call every 50 ms, and no more.
	fatePause = 50 * time.Millisecond
	// fateTries is how often a question that a hint caused is sent if no answer comes.
	fateTries = 3
	// watchAfter is the age at which a lease is worth a subscription.
	watchAfter = 100 * time.Millisecond
	// maxHints is how many hints are kept that came before their lease began.
	maxHints = 64
	// fateEach spaces out the questions that new subscriptions cause, to 1,000 leases a
	// second: after a failover, all leases at once would get in the way of other calls. One
	// round trip asks for fatesAtOnce leases.
	fateEach    = time.Millisecond
	fatesAtOnce = 100
	// gatherMissed is how long a handle collects keys with new subscriptions before it looks
	// through its leases once for all of them.
	gatherMissed = 20 * time.Millisecond
)

// readFate reads the reply to a Fate call. alive reports whether the attempt still holds or
// waits. If it does not, end is the revocation, or nil if there was none.
func readFate(c *call.Call, v []int64, failed error) (alive bool, end error, err error) {
	switch {
	case failed != nil:
		return false, nil, failed
	case len(v) != 1 || v[0] < 0 || v[0] > 3 || (v[0] == 3 && len(c.Text) != 1):
		return false, nil, call.Malformed("fate", v)
	case v[0] == 3:
		return false, &leasehold.RevokedError{Reason: cleanReason(c.Text[0])}, nil
	}
	return v[0] != 0, nil, nil
}

// revocation asks why an attempt that is gone has ended. end is a RevokedError, or nil if the
// attempt was not revoked. err says that no answer came within limit and before ctx ended: the
// attempt may or may not have been revoked.
func (m *Manager) revocation(ctx context.Context, req Request, limit time.Duration) (end, err error) {
	q, ok := req.(Fated)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	end, answered, err := call.Wait(ctx, m.Go, func(ctx context.Context) (error, error) {
		for n := 1; ; n++ {
			c := q.Fate()
			v, err := m.client.Do(ctx, c)
			alive, end, err := readFate(c, v, err)
			if err == nil && !alive {
				return end, nil
			}
			if err == nil || call.Classify(err) == call.Refused || ctx.Err() != nil {
				return nil, err
			}
			time.Sleep(call.Backoff(n))
		}
	})
	if !answered {
		err = errNoAnswer
	}
	return end, err
}

// endByFate ends a lease that is gone on the server, as revoked or lost.
func (l *Lease) endByFate() {
	// If no answer comes, the lease is lost: a RevokedError, too, matches ErrLost.
	end, _ := l.m.revocation(context.Background(), l.req, min(fatePatience, time.Until(l.Deadline())))
	l.mu.Lock()
	if l.cond != held {
		l.mu.Unlock()
		return
	}
	l.endAs(end)
}

// endAs ends a lease that is gone on the server: as revoked if end is not nil, otherwise as
// lost. Called with the lock, which it releases.
func (l *Lease) endAs(end error) {
	if end != nil {
		l.lose(end, nil)
	} else {
		l.lose(leasehold.ErrLost, errGone)
	}
	l.mu.Unlock()
	l.m.loop.Remove(&l.entry)
}

// askFate makes the schedule ask for the lease's fate soon.
func (l *Lease) askFate() { l.askFateAt(time.Now()) }

// askFateAt makes the schedule ask at the time at, or earlier if that was planned already, but
// not within fatePause of the last question.
func (l *Lease) askFateAt(at time.Time) {
	if _, ok := l.req.(Fated); !ok {
		return
	}
	l.mu.Lock()
	if soonest := l.fateAsked.Add(fatePause); at.Before(soonest) {
		at = soonest
	}
	if l.cond != held || (!l.fateAt.IsZero() && !at.Before(l.fateAt)) {
		l.mu.Unlock()
		return
	}
	l.fateAt = at
	next, slack := l.nextDue()
	l.mu.Unlock()
	l.m.loop.Put(&l.entry, l, next, slack)
}

// fateCall prepares the question for the schedule. Called with the lock.
func (l *Lease) fateCall(now time.Time) *call.Call {
	l.fateAt, l.fateAsked = time.Time{}, now
	c := l.req.(Fated).Fate()
	c.Rank = call.SignOfLife
	c.Done = func(v []int64, err error) {
		alive, end, err := readFate(c, v, err)
		l.m.reached(l.res, err)
		l.mu.Lock()
		if l.cond != held {
			l.mu.Unlock()
			return
		}
		if err != nil {
			l.fateFailures++
			again := l.fateFailures < fateTries && call.Classify(err) != call.Refused
			if !again {
				l.fateFailures = 0 // the next hint starts with a new number of tries
			}
			l.mu.Unlock()
			if again {
				l.askFate()
			}
			return
		}
		l.fateFailures = 0
		if alive {
			// Put the lease into the schedule anew, as after a renewal. Otherwise the schedule
			// would take its next call for the repetition of one that had no answer.
			at, slack := l.nextDue()
			l.mu.Unlock()
			l.m.loop.Put(&l.entry, l, at, slack)
			return
		}
		l.endAs(end)
	}
	return c
}

// hint handles a hint that the attempt seq was revoked.
func (m *Manager) hint(seq uint64) {
	m.mu.Lock()
	l, w := m.leases[seq], m.waiters[seq]
	var g *group
	var at time.Time
	if l == nil {
		// The attempt may have been granted without its lease having begun.
		m.hints[m.nextHint%maxHints] = seq
		m.nextHint++
		if w != nil && w.group != nil {
			g = w.group
			at = g.asked.Add(fatePause)
			g.hint(at)
		}
	}
	m.mu.Unlock()
	switch {
	case l != nil:
		l.askFate()
	case g != nil:
		m.loop.Put(&g.entry, g, at, 0)
	}
}

// wasHinted reports whether a hint for seq has come, and forgets it. Called with the manager's
// lock.
func (m *Manager) wasHinted(seq uint64) bool {
	if m.nextHint == 0 {
		return false
	}
	for i, s := range m.hints {
		if s == seq {
			m.hints[i] = 0
			return true
		}
	}
	return false
}

// A watch is the one schedule entry of a handle that makes sure that holders hear hints. It
// subscribes to the keys of leases that are older than watchAfter, and asks for the fates of
// leases whose hints may have been missed.
type watch struct {
	m     *Manager
	entry schedule.Entry

	// Guarded by the manager's lock.
	scheduled bool
	missed    map[string]bool // keys (a Resource.FirstKey) whose subscription is new; "": all

	nextFate time.Time // when the next question may be asked; used by Due alone
}

// add makes sure that the holder of l, which has just begun, hears hints. A hint may have come
// before the lease was listed. A later one finds the lease on the list.
func (w *watch) add(l *Lease) {
	m := w.m
	m.mu.Lock()
	hinted, first := m.wasHinted(l.seq), !w.scheduled
	w.scheduled = true
	m.mu.Unlock()
	if first {
		m.loop.Put(&w.entry, w, l.since.Add(watchAfter), watchAfter/4)
	}
	if hinted {
		l.askFate()
	}
}

// Due looks through the leases once and does all that is due.
func (w *watch) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	m := w.m
	var ask []*Lease
	oldest := time.Time{} // when the oldest lease that is still too young began
	m.mu.Lock()
	missed := w.missed
	w.missed = nil
	for _, l := range m.leases {
		key := l.res.FirstKey()
		switch {
		case l.watched:
			if missed[""] || missed[key] {
				ask = append(ask, l)
			}
		case now.Sub(l.since) >= watchAfter:
			l.watched = true
			if from := m.inbox.Watch(key); !from.IsZero() && from.After(l.since) {
				ask = append(ask, l)
			}
		case oldest.IsZero() || l.since.Before(oldest):
			oldest = l.since
		}
	}
	w.scheduled = !oldest.IsZero()
	m.mu.Unlock()
	w.askFates(now, ask)
	if oldest.IsZero() {
		return calls, time.Time{}, 0
	}
	return calls, oldest.Add(watchAfter), watchAfter / 4
}

// askFates asks for the fates of leases, fatesAtOnce at a time, after those of earlier calls.
func (w *watch) askFates(now time.Time, leases []*Lease) {
	if w.nextFate.Before(now) {
		w.nextFate = now
	}
	for i, l := range leases {
		l.askFateAt(w.nextFate.Add(time.Duration(i/fatesAtOnce*fatesAtOnce) * fateEach))
	}
	w.nextFate = w.nextFate.Add(time.Duration(len(leases)) * fateEach)
}

// hintsMissed notes that hints for leases of key may have been missed; "": of any key. A
// handle on a Cluster has a subscription for each key, and thousands may be new at once, so
// keys are collected for a moment.
func (w *watch) hintsMissed(key string) {
	m := w.m
	m.mu.Lock()
	first := len(w.missed) == 0 && len(m.leases) > 0
	if len(m.leases) > 0 {
		if first {
			w.missed = map[string]bool{}
		}
		w.missed[key] = true
		w.scheduled = true
	}
	m.mu.Unlock()
	if first {
		m.loop.Put(&w.entry, w, time.Now().Add(gatherMissed), 0)
	}
}

// dropLease takes a lease off the list. Called with the manager's lock.
func (m *Manager) dropLease(l *Lease) {
	delete(m.leases, l.seq)
	if l.watched {
		l.watched = false
		m.inbox.Unwatch(l.res.FirstKey())
	}
	m.closeIfDrained()
}

// subscribed is called on each new subscription. Messages may have been missed, so it asks for
// the fates of waiters and leases. For a lease it sends a question, not a renewal: it writes
// nothing, and no expiry depends on a subscription.
func (m *Manager) subscribed() {
	m.askAll()
	m.watch.hintsMissed("")
}

// subscribedFor does the same for one key (a Resource.FirstKey).
func (m *Manager) subscribedFor(key string) {
	m.askFor(key)
	m.watch.hintsMissed(key)
}
