package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// Release gives the lease back; op is how the package calls that.
func (l *Lease) Release(op string) error {
	if l.self != l {
		panic("leasehold: " + op + " of a lease that was not acquired, or of a copy of one: pass the pointer on")
	}
	m := l.m
	// Counted in before the lease is taken from those that Close gives back: Close
	// waits for this answer instead.
	open := m.count()
	defer m.done()
	switch l.end(leasehold.ErrReleased) {
	case released:
		return m.fail(op, l.res.Label(), leasehold.ErrReleased)
	case lost:
		if open { // else the schedule may have ended; so has the lease, by itself
			m.giveBackLater(l.newGiveBack())
		}
		m.events.staleRelease(l)
		return l.fail(op)
	}
	m.holds.add(time.Since(l.since))
	return l.released(op, l.leave(false))
}

// released is what Release returns for what leave found wrong.
func (l *Lease) released(op string, errs []error) error {
	if errs == nil {
		return nil
	}
	if why := errs[0]; errors.Is(why, leasehold.ErrLost) {
		l.m.events.ended(l, why, false)
		l.m.events.staleRelease(l)
	}
	return l.m.fail(op, l.res.Label(), errs...)
}

// end takes the lease out of its holder's hands, once, and returns what it was
// before. Only the caller that gets "held" or "lost" gives it back. A lease that was lost
// before Close stays lost: its holder is yet to be told.
func (l *Lease) end(why error) condition {
	l.mu.Lock()
	if l.cond == held && !time.Now().Before(l.deadline) {
		l.lose(leasehold.ErrLost, l.noRenewal()) // before the schedule got to it
	}
	was := l.cond
	if was == held || why != leasehold.ErrClosed {
		l.cond = released
	}
	if was == held {
		l.why = why
		if l.cancel != nil {
			l.cancel(l.fail("hold"))
		}
		l.m.events.released(l, why)
		if l.turns != nil && why != leasehold.ErrReleased {
			l.m.Go(l.turns.LeaseEnded)
		}
	}
	l.mu.Unlock()
	if was != released {
		l.m.loop.Remove(&l.entry)
		l.m.mu.Lock()
		l.m.dropLease(l)
		l.m.mu.Unlock()
	}
	return was
}

// End ends the lease after another call than Leave gave it back.
func (l *Lease) End() { l.end(leasehold.ErrReleased) }

// GiveBack gives the lease back in the background.
func (l *Lease) GiveBack() { l.abandon(leasehold.ErrReleased) }

// abandon gives the lease back in the background, for the reason why.
func (l *Lease) abandon(why error) {
	if l.end(why) != released {
		l.m.giveBackLater(l.newGiveBack())
	}
}

// leave sends the leave until it is answered, a few times, and says what is wrong
// with the lease, if anything. resent says that a leave was sent before that was not
// answered.
func (l *Lease) leave(resent bool) []error {
	m := l.m
	ctx, began := m.client.Brief(), time.Now()
	for n := 1; ; n++ {
		sent := time.Now()
		ints, err := m.client.Do(ctx, leaveCall(l.req, l.enterMayArriveUntil))
		var r LeaveReply
		if err == nil {
			r, err = l.req.ReadLeave(ints)
		}
		m.reached(l.res, err)
		if err == nil {
			m.deliver(r.Grants, sent)
			if r.More {
				m.giveBackLater(l.newGiveBack()) // nothing is left to give back, but there is more to hand on
			}
			// The deadline had not passed when the holder let go. That the server
			// knows no lease says that it was lost before only if this was the
			// one call, and was answered before the lease can have expired.
			if r.Held || resent || !time.Now().Before(l.deadline) {
				return nil
			}
			return l.whyGone()
		}
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			err = call.TooLate(err, began) // the ctx is no caller's
		}
		class := call.Classify(err)
		if class == call.Unknown {
			resent = true
			m.askSoon(l.res) // grants to our own waiters may have been in the reply
		}
		if class == call.Refused || n == maxTries || ctx.Err() != nil {
			m.giveBackLater(l.newGiveBack())
			return []error{leasehold.ErrUnavailable, err}
		}
		time.Sleep(call.Backoff(n))
	}
}

// whyGone is what a release returns for a lease that the server did not know, though its
// deadline had not passed. It asks whether the lease was revoked.
func (l *Lease) whyGone() []error {
	if end := l.m.revocation(context.Background(), l.req, time.Time{}); end != nil {
		return []error{end}
	}
	return []error{leasehold.ErrLost, errGone}
}

// leaveCall is a leave, which goes ahead of calls that take.
func leaveCall(req Request, enterMayArriveUntil int64) *call.Call {
	c := req.Leave(enterMayArriveUntil)
	c.GivesBack = true
	return c
}

// Extend pushes the expiry to ttl from now, and never shortens it.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	const op = "extend"
	m := l.m
	if ttl < MinTTL {
		return m.fail(op, l.res.Label(), keys.Invalid("ttl is %v; want at least %v", ttl, MinTTL))
	}
	if err := l.Held(op); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return m.fail(op, l.res.Label(), err)
	}
	if !l.maxEnd.IsZero() {
		ttl = max(MinTTL, capTerm(ttl, time.Until(l.maxEnd)))
	}
	_, answered, err := call.Wait(ctx, m.Go, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.sendExtend(ctx, ttl)
	})
	switch {
	case err == nil:
		return l.Held(op)
	case wrongType(err):
		return m.fail(op, l.res.Label(), leasehold.ErrLost, err)
	case !answered:
		err = errNoAnswer
	}
	return m.fail(op, l.res.Label(), ctx.Err(), leasehold.ErrUnavailable, err)
}

// extendPatience is how long an Extend tries: no try begins later.
const extendPatience = time.Second

// sendExtend renews for ttl, a few times until it is answered.
func (l *Lease) sendExtend(ctx context.Context, ttl time.Duration) error {
	began := time.Now()
	for n := 1; ; n++ {
		sent := time.Now()
		c := l.renewal(sent, ttl)
		ints, err := l.m.client.Do(ctx, c)
		refused := err != nil && call.Classify(err) == call.Refused
		if err == nil || refused {
			if l.onRenewed(c, sent, ints, err) {
				l.endByFate()
			}
		}
		if err == nil {
			return c.Unconfirmed() // once is enough: it took as long as replicas may take
		}
		if refused || n == maxTries || ctx.Err() != nil || time.Since(began) > extendPatience {
			return err
		}
		time.Sleep(call.Backoff(n))
	}
}

// giveBack is a leave that is sent until it is answered, or until there is nothing
// left to give back: the term is over and no enter can arrive any more. A server that
// refuses it is asked again, slowly: a failed save, a lack of memory or of rights may
// pass, and the permit stays taken until then.
type giveBack struct {
	m                   *Manager
	res                 Resource
	req                 Request
	enterMayArriveUntil int64
	until               time.Time
	heldIsLate          atomic.Bool // of a waiter: a lease that it gives back came too late
	entry               schedule.Entry

	sent    int          // by Due, on the schedule's goroutine alone
	refused atomic.Int32 // answers that refused it, in a row
	over    atomic.Bool
}

// refusedPause is the pause after a leave that the server refused.
const refusedPause = 500 * time.Millisecond

// giveBackLater gives back in the background.
func (m *Manager) giveBackLater(g *giveBack) { m.loop.Put(&g.entry, g, time.Now(), 0) }

func (m *Manager) newGiveBack(res Resource, req Request, enterMayArriveUntil int64) *giveBack {
	return &giveBack{
		m: m, res: res, req: req, enterMayArriveUntil: enterMayArriveUntil,
		until: time.Now().Add(max(m.cfg.TTL, voidAfter)),
	}
}

// newGiveBack is for a lease that is over; it may have been extended. Called
// with the lock, or once the deadline can no longer change.
func (l *Lease) newGiveBack() *giveBack {
	g := l.m.newGiveBack(l.res, l.req, l.enterMayArriveUntil)
	if end := l.deadline.Add(margin(time.Until(l.deadline))); end.After(g.until) {
		g.until = end
	}
	return g
}

// Due sends the leave.
func (g *giveBack) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	if g.over.Load() || !now.Before(g.until) {
		return calls, time.Time{}, 0
	}
	c := leaveCall(g.req, g.enterMayArriveUntil)
	c.Done = func(ints []int64, err error) { g.onAnswer(now, ints, err) }
	g.sent++
	pause := 4 * call.Backoff(g.sent)
	if g.refused.Load() >= maxTries {
		pause = refusedPause
	}
	return append(calls, c), now.Add(pause), pause / 2
}

// onAnswer takes the outcome of a leave that was sent at sent.
func (g *giveBack) onAnswer(sent time.Time, ints []int64, err error) {
	var r LeaveReply
	if err == nil {
		r, err = g.req.ReadLeave(ints)
	}
	g.m.reached(g.res, err)
	if err == nil && r.Held && g.heldIsLate.Swap(false) {
		g.m.events.lateGrant(g.res, g.req)
	}
	switch {
	case err == nil && r.More: // there is more to hand on
		g.m.deliver(r.Grants, sent)
		g.m.loop.Put(&g.entry, g, time.Now(), 0)
		return
	case err == nil:
		g.over.Store(true)
		g.m.loop.Remove(&g.entry)
		g.m.deliver(r.Grants, sent)
		return
	}
	// It is scheduled to be sent again.
	switch call.Classify(err) {
	case call.Unknown:
		g.m.askSoon(g.res) // grants to our own waiters may have been in the reply
	case call.Refused:
		g.refused.Add(1)
	case call.NotNow:
		if errors.Is(err, call.ErrBacklog) {
			g.sent-- // it was not sent; this is the schedule's goroutine
		}
	}
}
