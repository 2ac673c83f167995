package lease

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/renew"
)

// giveBack is a leave that is sent until it is answered, or until there is
// nothing left to give back: the term is over and no enter can arrive any more.
type giveBack struct {
	m     *Manager
	req   *engine.Request
	stray int64
	until time.Time
	tries int // sent; on the loop's goroutine only
	entry renew.Entry

	refused atomic.Int32 // answers that the server will not
	over    atomic.Bool
}

// giveBack ends a waiter and gives back what it was or may yet be granted.
func (m *Manager) giveBack(w *waiter) {
	m.forget(w)
	m.giveBackLater(m.newGiveBack(w.req, w.stray))
}

// giveBackLater gives back in the background.
func (m *Manager) giveBackLater(g *giveBack) { m.loop.Put(&g.entry, g, time.Now(), 0) }

func (m *Manager) newGiveBack(req *engine.Request, stray int64) *giveBack {
	return &giveBack{m: m, req: req, stray: stray, until: time.Now().Add(max(req.TTL, voidAfter))}
}

// newGiveBack is for a lease that is over; it may have been extended. Called
// with the lock, or once the deadline can no longer change.
func (l *Lease) newGiveBack() *giveBack {
	g := l.m.newGiveBack(l.req, l.stray)
	if end := l.deadline.Add(margin(time.Until(l.deadline))); end.After(g.until) {
		g.until = end
	}
	return g
}

// Due sends the leave.
func (g *giveBack) Due(now time.Time, calls []*engine.Call) ([]*engine.Call, time.Time, time.Duration) {
	if g.over.Load() || !now.Before(g.until) {
		return calls, time.Time{}, 0
	}
	c := g.req.Leave(g.m.eng.Node(g.req.Resource), g.stray)
	c.Done = func(v []int64, err error) { g.answered(now, v, err) }
	g.tries++
	pause := 4 * backoff(g.tries)
	return append(calls, c), now.Add(pause), pause / 2
}

func (g *giveBack) answered(sent time.Time, v []int64, err error) {
	var r engine.LeaveReply
	if err == nil {
		r, err = engine.ParseLeave(v)
	}
	switch {
	case errors.Is(err, engine.ErrBacklog):
		g.tries-- // not sent; this is the loop's goroutine
		return
	case err == nil:
	case engine.Classify(err) == engine.Unknown:
		g.m.askSoon(g.req.Resource)
		return // it is scheduled to be sent again
	case engine.Classify(err) == engine.NotNow || g.refused.Add(1) < tries:
		return
	}
	if err == nil && r.More { // there is more to hand on
		g.m.deliver(r.Grants, sent)
		g.m.loop.Put(&g.entry, g, time.Now(), 0)
		return
	}
	g.over.Store(true) // confirmed, or refused for good
	g.m.loop.Remove(&g.entry)
	g.m.deliver(r.Grants, sent)
}
