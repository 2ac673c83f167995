package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// enter sends the enter until it is answered, and says what to do next.
func (q *acquisition) enter(ctx context.Context) (event, *ended) {
	m := q.m
	for {
		select {
		case <-m.closing:
			if q.ahead != nil {
				q.w.stray = q.ahead.void
			}
			return event{}, q.left(leasehold.ErrClosed)
		default:
		}
		now, end := q.clock(ctx)
		if end != nil {
			return event{}, end
		}
		w, e := q.w, q.ahead
		if q.ahead = nil; e == nil {
			e = q.prepare(now)
			if ctx.Done() == nil && m.eng.Bounded() {
				e.answer(m.eng.Do(ctx, e.call)) // nothing can end it before: spare the switch to another goroutine
				if got, end, again := q.took(ctx, e); !again {
					return got, end
				}
				continue
			}
			e.done = make(chan struct{})
			m.spawn(func() { e.answer(m.eng.Do(ctx, e.call)) })
		}
		select {
		case <-e.done:
			if got, end, again := q.took(ctx, e); !again {
				return got, end
			}
		case <-w.told:
			// Granted by another's leave, before the reply: so the enter has
			// run. Where there were two, one may still be on its way.
			if w.stray != 0 {
				w.stray = max(w.stray, e.void)
			}
			return m.heard(w), nil
		case <-ctx.Done():
			w.stray = max(w.stray, e.void)
			return event{}, q.left(ctx.Err())
		case <-m.closing:
			w.stray = max(w.stray, e.void)
			return event{}, q.left(leasehold.ErrClosed)
		}
	}
}

// took is what an answered enter means: what to do next, or to send it again.
func (q *acquisition) took(ctx context.Context, e *entering) (got event, end *ended, again bool) {
	if e.err == nil {
		clock := q.m.learn(e.reply.Now, e.sent, time.Now())
		q.failures = 0
		got, end = q.answered(e.reply, clock)
		return got, end, false
	}
	q.waits()
	end = q.unanswered(ctx, e.err, e.sent, e.void)
	return event{}, end, end == nil
}

// entering is an enter under way.
type entering struct {
	q    *acquisition
	req  *engine.Request
	call *engine.Call
	sent time.Time
	void int64
	done chan struct{} // closed once reply and err are there; nil where nobody waits beside

	reply engine.EnterReply
	err   error
}

// prepare makes the enter that is sent now, the server's clock standing at now
// at the latest.
func (q *acquisition) prepare(now int64) *entering {
	e := &entering{q: q, req: q.w.req, sent: time.Now(), void: now + voidAfter.Microseconds()}
	opts := engine.EnterOptions{
		Void: e.void, Wait: q.Wait, Ticket: q.ticket, MaxWaiters: q.m.cfg.MaxWaiters, Look: q.Look,
	}
	if q.ticket != 0 {
		opts.MaxWaiters = 0 // it has its place already
	}
	if q.Asked != nil {
		q.Asked()
	}
	e.call = e.req.Enter(opts)
	return e
}

// answer takes the outcome of the call.
func (e *entering) answer(v []int64, err error) {
	if e.err = err; err == nil {
		e.reply, e.err = e.req.ParseEnter(e.call, v)
	}
	if e.err == nil {
		// Processed although the caller may have left: others' grants ride on it.
		e.q.m.deliver(e.reply.Grants, e.sent)
		if e.reply.More {
			e.q.m.askSoon(e.req.Resource)
		}
	}
	if e.done != nil {
		close(e.done)
	}
}

type reply[T any] struct {
	val T
	err error
}

// answered says what an enter's reply means.
func (q *acquisition) answered(r engine.EnterReply, clock sample) (event, *ended) {
	m := q.m
	switch r.Code {
	case engine.Granted:
		return event{kind: granted, deadline: clock.sent.Add(r.Remaining - margin(r.Remaining)), token: r.Token}, nil
	case engine.Queued:
		if q.ticket == 0 {
			q.ticket = r.Now
		}
		state := r.State // of its own, so that r needs no allocation elsewhere
		q.busy = &state
		m.queue(q.w, clock, r)
		return event{kind: waitOn}, nil
	case engine.Found, engine.Failed:
		return event{kind: found, code: r.Code, text: r.Text}, nil
	case engine.Void:
		// The map of the server's clock was off: it has been learned anew.
		if q.restarts++; q.restarts >= rounds {
			m.giveBack(q.w)
			return event{}, endedBy(leasehold.ErrUnavailable, errLate)
		}
		return event{kind: enterAgain}, nil
	case engine.GivenUp:
		// Not by us: keys were deleted. Another member is not mistaken.
		q.lastErr = errors.New("the queue's keys do not fit together")
		return event{kind: enterAgain}, q.again()
	case engine.TooMany:
		q.leaveQuietly()
		return event{}, endedBy(tooMany(q.Permits, r.State.Limit))
	case engine.QueueFull:
		q.leaveQuietly()
		return event{}, endedBy(leasehold.ErrQueueFull, busyError(r.State))
	default:
		q.leaveQuietly()
		return event{}, endedBy(busyError(r.State))
	}
}

// unanswered says what an enter's error means: nil to send it again, after a
// pause. The same member is sent, so that it takes nothing twice.
func (q *acquisition) unanswered(ctx context.Context, err error, sent time.Time, void int64) *ended {
	outcome := engine.Classify(err)
	if outcome == engine.Unknown {
		q.w.stray = max(q.w.stray, void)
		q.m.askSoon(q.res)
	}
	if ctx.Err() != nil {
		return q.left(ctx.Err(), err)
	}
	if q.failures++; q.failures == 1 {
		q.failed = sent
	}
	pause := backoff(q.failures)
	if outcome == engine.Refused || (!q.Wait && q.failures >= tries) || time.Since(q.failed)+pause > patience {
		q.m.giveBack(q.w)
		return endedBy(leasehold.ErrUnavailable, err)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return q.left(ctx.Err(), err)
	case <-q.m.closing:
		return q.left(leasehold.ErrClosed)
	}
}

// backoff is the pause before try n+1: 8 ms doubling to 256 ms, spread.
func backoff(n int) time.Duration {
	d := 4 * time.Millisecond << min(n, 6)
	return d/2 + rand.N(d)
}

// clock is the server's time now, at the latest; asked for once a handle.
func (q *acquisition) clock(ctx context.Context) (int64, *ended) {
	m := q.m
	for {
		if s, ok := m.clock.last(); ok {
			return s.latest(time.Now()), nil
		}
		sent := time.Now()
		replies := make(chan reply[int64], 1)
		m.spawn(func() {
			us, err := m.eng.Time(ctx)
			replies <- reply[int64]{us, err}
		})
		select {
		case r := <-replies:
			if r.err == nil {
				m.learn(r.val, sent, time.Now())
				q.failures = 0
			} else if end := q.unanswered(ctx, r.err, sent, 0); end != nil {
				return 0, end
			}
		case <-ctx.Done():
			return 0, q.left(ctx.Err())
		case <-m.closing:
			return 0, q.left(leasehold.ErrClosed)
		}
	}
}
