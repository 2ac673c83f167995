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

// Release gives the lease back. op is the package's name for that.
func (l *Lease) Release(op string) error { return l.release(op, nil) }

// ReleaseTogether is Release together with the other calls of a batch. Each lease of the batch
// is released by a goroutine of its own.
func (l *Lease) ReleaseTogether(op string, seat *call.Seat) error {
	defer seat.Leave()
	l.seat = seat
	return l.release(op, nil)
}

// Complete is Release by a leave that also stores a result, if the lease is still held there.
// mark makes the request prepare such leaves. Complete calls it once it is certain that the
// holder had not lost the lease: no leave of a lost lease may store anything. A nil error says
// that the result is stored. If Close ended the lease, the error matches leasehold.ErrClosed.
func (l *Lease) Complete(op string, mark func()) error { return l.release(op, mark) }

func (l *Lease) release(op string, mark func()) error {
	if l.self != l {
		panic("leasehold: " + op + " of a lease that was not acquired, or of a copy of one: pass the pointer on")
	}
	m := l.m
	// The operation is counted before the lease is taken off the list that Close works on, so
	// that Close waits for this answer.
	open := m.count()
	defer m.done()
	defer m.events.observed()
	switch l.end(leasehold.ErrReleased) {
	case released:
		if mark != nil {
			return l.fail(op)
		}
		return m.fail(op, l.res.Label(), leasehold.ErrReleased)
	case lost:
		if open { // otherwise the schedule may have stopped; the lease has ended by itself
			l.leaveLater()
		}
		m.events.staleRelease(l)
		return l.fail(op)
	}
	m.holds.add(time.Since(l.since))
	if mark != nil {
		l.completes = true
		mark()
	}
	return l.releaseError(op, l.leave(false))
}

// releaseError returns the error of a release for which leave returned errs.
func (l *Lease) releaseError(op string, errs []error) error {
	if errs == nil {
		return nil
	}
	if why := errs[0]; errors.Is(why, leasehold.ErrLost) {
		l.m.events.ended(l, why, false)
		l.m.events.staleRelease(l)
	}
	return l.m.fail(op, l.res.Label(), errs...)
}

// end ends the lease for its holder, and returns the condition that it had before. Only the
// caller that gets "held" or "lost" gives the lease back. A lease that was lost before Close
// stays lost, because its holder has yet to be told.
func (l *Lease) end(why error) condition {
	l.mu.Lock()
	if l.cond == held && !time.Now().Before(l.deadline) {
		l.lose(leasehold.ErrLost, l.noRenewal()) // the schedule has not noticed it yet
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

// End ends the lease after a call other than Leave has given it back.
func (l *Lease) End() { l.end(leasehold.ErrReleased) }

// GiveBack gives the lease back in the background.
func (l *Lease) GiveBack() { l.abandon(leasehold.ErrReleased) }

// abandon gives the lease back in the background; why is the reason.
func (l *Lease) abandon(why error) {
	if l.end(why) != released {
		l.leaveLater()
	}
}

// leave sends the leave until it is answered, a few times at most. It returns the errors of
// the release, or nil. resent says that an earlier leave was sent and not answered.
func (l *Lease) leave(resent bool) []error {
	m, began := l.m, time.Now()
	ctx := context.Background() // while the server answers, the first try waits in its queue
	for n := 1; ; n++ {
		if err := m.client.Reachable(ctx, l.res.FirstKey()); err != nil {
			l.leaveLater()
			return []error{leasehold.ErrUnavailable, err}
		}
		c := leaveCall(l.req, l.enterMayArriveUntil)
		if l.completes {
			c.Confirm = m.confirm
		}
		ints, err := l.send(ctx, c)
		var r LeaveReply
		if err == nil {
			r, err = l.req.ReadLeave(ints)
		}
		m.reached(l.res, err)
		if c.Copied() {
			resent = true
			m.askSoon(l.res) // as for a lost reply
		}
		if err == nil {
			if errs := l.onLeft(r, c.Sent, resent); errs != nil || !l.completes {
				return errs
			}
			if err = c.Unconfirmed(); err != nil {
				return []error{leasehold.ErrUnavailable, err}
			}
			return nil
		}
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			err = call.TooLate(err, began) // the ctx is not the caller's own
		}
		class := call.Classify(err)
		if class == call.Unknown {
			resent = true
			m.askSoon(l.res) // the lost reply may have carried grants to our own waiters
		}
		if class == call.Refused || n == maxTries || time.Since(began) >= call.Bound {
			l.leaveLater()
			return []error{leasehold.ErrUnavailable, err}
		}
		if n == 1 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, began.Add(call.Bound))
			defer cancel()
		}
		time.Sleep(call.Backoff(n))
	}
}

// send sends a leave, the first one by the lease's seat if it has one.
func (l *Lease) send(ctx context.Context, c *call.Call) ([]int64, error) {
	if seat := l.seat; seat != nil {
		l.seat = nil
		return seat.Do(ctx, l.m.client, c)
	}
	return l.m.client.Do(ctx, c)
}

// onLeft handles the reply to a leave that was sent at the time sent, and returns the errors of
// the release, or nil. resent says that an earlier leave was sent and not answered.
func (l *Lease) onLeft(r LeaveReply, sent time.Time, resent bool) []error {
	l.m.deliver(r.Grants, sent)
	if r.More {
		l.leaveLater() // this lease is given back, but there is more to hand on
	}
	if r.Held {
		return nil
	}
	// The deadline had not passed when the holder let go, and does not change any more. If the
	// server knows no lease now, the lease was lost before, but that is certain only if this
	// was the only leave and its answer came before the lease can have expired. Else an earlier
	// leave may have given it back, or the time has. In each case it may have been revoked.
	// A leave that completes finds its own result if an earlier one of it has run.
	sure := l.completes || (!resent && time.Now().Before(l.deadline))
	end, err := l.m.revocation(context.Background(), l.req, fatePatience)
	switch {
	case end != nil:
		return []error{end}
	case sure:
		return []error{leasehold.ErrLost, errGone}
	case err != nil:
		return []error{leasehold.ErrUnavailable, err} // given back or revoked, nobody says which
	}
	return nil
}

// leaveCall returns a leave that goes ahead of other calls in the queue of its server.
func leaveCall(req Request, enterMayArriveUntil int64) *call.Call {
	c := req.Leave(enterMayArriveUntil)
	c.Rank = call.GivesBack
	return c
}

// Extend moves the expiry to ttl from now. It never moves it back.
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
		ttl = TermWithin(ttl, time.Until(l.maxEnd))
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

// extendPatience bounds how long an Extend starts new tries.
const extendPatience = time.Second

// sendExtend renews the lease for ttl. It repeats the call a few times until it is answered.
func (l *Lease) sendExtend(ctx context.Context, ttl time.Duration) error {
	l.m.count() // its outcome may have to do with a leave that Close waits for
	defer l.m.done()
	began := time.Now()
	for n := 1; ; n++ {
		c := l.renewal(time.Now(), ttl, l.Deadline())
		ints, err := l.m.client.Do(ctx, c)
		refused := err != nil && call.Classify(err) == call.Refused
		if err == nil || refused {
			if l.onRenewed(c, ints, err) {
				l.endByFate()
			}
		} else if call.Classify(err) == call.Unknown {
			l.mu.Lock()
			l.mayStand(ttl)
			l.mu.Unlock()
		}
		if err == nil {
			return c.Unconfirmed() // no second try: this one has waited for the replicas as long as allowed
		}
		if refused || n == maxTries || ctx.Err() != nil || time.Since(began) > extendPatience || l.isReleased() {
			return err
		}
		time.Sleep(call.Backoff(n))
	}
}

func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cond == released
}

// A giveBack is a leave in the background. It is sent until it is answered, or until nothing
// can be left to give back: the term is over and no copy of the enter can arrive any more. If
// the server refuses the leave, it is sent again, slowly. The cause (a failed save, a lack of
// memory or of rights) may pass, and until then the permit stays taken.
type giveBack struct {
	m                   *Manager
	res                 Resource
	req                 Request
	enterMayArriveUntil int64
	began               time.Time
	lasts               atomic.Int64 // for how long the leave is sent: a time.Duration from began
	foreign             atomic.Bool  // a foreign value has the place of our keys; see Due
	heldIsLate          atomic.Bool  // if the leave finds a lease, that lease was granted to a waiter too late
	entry               schedule.Entry

	call    *call.Call   // the last leave; used only on the schedule's goroutine, as sent is
	sent    int          // how many leaves Due has queued
	refused atomic.Int32 // how many answers have refused it
	over    atomic.Bool
}

// refusedPause is the pause after a leave that the server refused maxTries times or more.
const refusedPause = 500 * time.Millisecond

// giveBackLater gives back in the background.
func (m *Manager) giveBackLater(g *giveBack) { m.loop.Put(&g.entry, g, time.Now(), 0) }

// newGiveBack returns the giveBack of an attempt. What a copy of the enter that is still under
// way is granted lasts for a TTL from when that copy runs, which may be voidAfter from now.
func (m *Manager) newGiveBack(res Resource, req Request, enterMayArriveUntil int64) *giveBack {
	g := &giveBack{m: m, res: res, req: req, enterMayArriveUntil: enterMayArriveUntil, began: time.Now()}
	lasts := max(m.cfg.TTL, voidAfter)
	if enterMayArriveUntil != 0 {
		lasts = voidAfter + m.cfg.TTL
	}
	g.lasts.Store(int64(lasts))
	return g
}

// newGiveBack returns the giveBack of a lease that is over. Called with the lock.
func (l *Lease) newGiveBack() *giveBack {
	g := l.m.newGiveBack(l.res, l.req, l.enterMayArriveUntil)
	g.lasts.Store(max(g.lasts.Load(), int64(l.standsUntil.Sub(g.began))))
	l.leaving = g
	return g
}

// leaveLater gives the lease back in the background.
func (l *Lease) leaveLater() {
	l.mu.Lock()
	g := l.newGiveBack()
	l.mu.Unlock()
	l.m.giveBackLater(g)
}

// mayStand notes that a renewal for term was answered just now, or got no answer and may have
// run just now. The lease may be over for its holder: such a renewal prolongs the term of a
// lease whose leave has not run yet, so the leave is repeated for that long. (A leave that has
// run needs nothing: a renewal after it finds no lease.) Called with the lock.
func (l *Lease) mayStand(term time.Duration) {
	end := time.Now().Add(term)
	if !end.After(l.standsUntil) {
		return
	}
	l.standsUntil = end
	if g := l.leaving; g != nil && !g.over.Load() {
		// Only here does lasts change once it is scheduled, and the lease is locked.
		g.lasts.Store(max(g.lasts.Load(), int64(end.Sub(g.began))))
		g.m.giveBackLater(g) // it may have ended
	}
}

// Due sends the leave.
func (g *giveBack) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	lasts := time.Duration(g.lasts.Load())
	if g.foreign.Load() {
		// There is nothing to give back, unless a copy of the enter arrives after the foreign
		// value is gone.
		lasts = min(lasts, voidAfter)
	}
	if g.over.Load() || now.Sub(g.began) >= lasts {
		return calls, time.Time{}, 0
	}
	pause := 4 * call.Backoff(max(1, g.sent))
	if g.refused.Load() >= maxTries {
		pause = refusedPause
	}
	if g.call != nil {
		if until, pending := g.call.Pending(now, pause, g.m.cfg.TTL); pending {
			return calls, until, 0
		}
	}
	c := leaveCall(g.req, g.enterMayArriveUntil)
	c.Done = func(ints []int64, err error) { g.onAnswer(c, ints, err) }
	g.call = c
	g.sent++
	return append(calls, c), now.Add(pause), pause / 2
}

// onAnswer processes the outcome of the leave c.
func (g *giveBack) onAnswer(c *call.Call, ints []int64, err error) {
	var r LeaveReply
	if err == nil {
		r, err = g.req.ReadLeave(ints)
	}
	g.m.reached(g.res, err)
	if c.Copied() {
		g.m.askSoon(g.res) // a lost reply may have carried grants to our own waiters
	}
	if err == nil && r.Held && g.heldIsLate.Swap(false) {
		g.m.events.lateGrant(g.res, g.req)
	}
	switch {
	case err == nil && r.More: // there is more to hand on
		g.m.deliver(r.Grants, c.Sent)
		g.m.loop.Put(&g.entry, g, time.Now(), 0)
		return
	case err == nil:
		g.over.Store(true)
		g.m.loop.Remove(&g.entry)
		g.m.deliver(r.Grants, c.Sent)
		return
	}
	// The leave is already scheduled to be sent again.
	switch call.Classify(err) {
	case call.Unknown:
		g.m.askSoon(g.res) // the lost reply may have carried grants to our own waiters
	case call.Refused:
		g.refused.Add(1)
		if wrongType(err) {
			g.foreign.Store(true)
		}
	}
}
