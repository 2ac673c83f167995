package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
)

const (
	// voidAfter is how long an enter may take to arrive.
	voidAfter = 5 * time.Second
	// patience is how long an acquire that waits puts up with a server that
	// does not answer; one that does not wait tries tries times.
	patience = 3 * time.Second
	tries    = 3
	// rounds bounds how often one acquire starts anew because a reply came too
	// late to be of use.
	rounds = 4
)

// Attempt says what to acquire.
type Attempt struct {
	Op      string // for errors: "acquire", "lock", …
	Key     string
	Permits int
	Limit   int
	Wait    bool
}

// Acquire takes what a asks for and makes into the lease of it. It returns when
// ctx ends, wherever it is; what it may have been granted by then is given back
// in the background.
func (m *Manager) Acquire(ctx context.Context, a Attempt, into *Lease) error {
	named, err := m.cfg.Family.Resource(a.Key)
	if err != nil {
		return m.fail(a.Op, keys.Escape(m.cfg.Family.Name), err)
	}
	if err := ctx.Err(); err != nil {
		return m.fail(a.Op, named.Label, err, leasehold.ErrUnavailable)
	}
	if !m.begin() {
		return m.fail(a.Op, named.Label, leasehold.ErrClosed)
	}
	defer m.done()
	q := &acquisition{m: m, Attempt: a, res: engine.NewResource(named, m.cfg.Fenced), began: time.Now()}
	q.register()
	if err := q.run(ctx, into); err != nil {
		return m.fail(a.Op, named.Label, err.errs...)
	}
	return nil
}

// acquisition is one Acquire under way.
type acquisition struct {
	m     *Manager
	res   *engine.Resource
	began time.Time
	Attempt

	w        *waiter
	ticket   int64         // place in the queue, once there was one
	busy     *engine.State // what a queued reply said
	failures int           // calls in a row without an answer
	failed   time.Time     // since when
	restarts int
	lastErr  error
}

// ended is why an acquisition came to nothing.
type ended struct{ errs []error }

func endedBy(errs ...error) *ended { return &ended{errs} }

// register makes a new attempt: a new member, known to the handle before it is
// sent, since the grant may come by another way before the reply.
func (q *acquisition) register() {
	m := q.m
	seq := m.seq.Add(1)
	q.w = &waiter{
		req:    engine.NewRequest(q.res, m.handle, seq, q.Permits, m.cfg.TTL, q.Limit),
		events: make(chan event, 1),
	}
	if !q.Wait {
		return // never queued, so nobody else grants to it
	}
	m.mu.Lock()
	m.waiters[seq] = q.w
	m.mu.Unlock()
}

// run enters until it is granted, refused or ended.
func (q *acquisition) run(ctx context.Context, into *Lease) *ended {
	for {
		got, end := q.enter(ctx)
		if end == nil && got.kind == waitOn {
			got, end = q.wait(ctx)
		}
		if end != nil {
			return end
		}
		switch got.kind {
		case granted:
			if into.start(ctx, q, got) {
				return nil
			}
			// The grant was over before it could be used.
			q.lastErr = errLate
			if end := q.again(); end != nil {
				return end
			}
		case refused:
			q.m.forget(q.w)
			return endedBy(tooMany(q.Permits, got.limit))
		case failed:
			q.m.giveBack(q.w)
			return endedBy(leasehold.ErrUnavailable, got.err)
		case enterAgain:
		}
	}
}

var errLate = errors.New("the reply came later than the lease lasts")

func tooMany(permits, limit int) error {
	return fmt.Errorf("asks for %d permits; the limit is %d", permits, limit)
}

// again gives up this attempt's member and starts another, in the same place.
func (q *acquisition) again() *ended {
	q.m.giveBack(q.w)
	if q.restarts++; q.restarts >= rounds {
		return endedBy(leasehold.ErrUnavailable, q.lastErr)
	}
	q.register()
	return nil
}

// enter sends the enter until it is answered, and says what to do next.
func (q *acquisition) enter(ctx context.Context) (event, *ended) {
	m := q.m
	for {
		select {
		case <-m.closing:
			return event{}, q.left(leasehold.ErrClosed)
		default:
		}
		now, end := q.clock(ctx)
		if end != nil {
			return event{}, end
		}
		void := now + voidAfter.Microseconds()
		opts := engine.EnterOptions{Void: void, Wait: q.Wait, Ticket: q.ticket, MaxWaiters: m.cfg.MaxWaiters}
		if q.ticket != 0 {
			opts.MaxWaiters = 0 // it has its place already
		}
		sent := time.Now()
		w := q.w
		replies := make(chan reply[engine.EnterReply], 1)
		send := func() {
			v, err := m.eng.Do(ctx, w.req.Enter(opts))
			var r engine.EnterReply
			if err == nil {
				r, err = engine.ParseEnter(v)
			}
			if err == nil {
				// Processed although the caller may have left: others' grants
				// ride on it.
				m.deliver(r.Grants, sent)
			}
			replies <- reply[engine.EnterReply]{r, err}
		}
		if ctx.Done() == nil && m.eng.Bounded() {
			send() // nothing can end it before: spare the switch to another goroutine
		} else {
			m.spawn(send)
		}
		select {
		case r := <-replies:
			if r.err == nil {
				m.learn(r.val.Now, sent, time.Now())
				q.failures = 0
				return q.answered(r.val, sent)
			}
			if end := q.unanswered(ctx, r.err, sent, void); end != nil {
				return event{}, end
			}
		case e := <-w.events:
			// Granted by another's leave, before the reply: so the enter has
			// run. Where there were two, one may still be on its way.
			if w.stray != 0 {
				w.stray = max(w.stray, void)
			}
			return e, nil
		case <-ctx.Done():
			w.stray = max(w.stray, void)
			return event{}, q.left(ctx.Err())
		case <-m.closing:
			w.stray = max(w.stray, void)
			return event{}, q.left(leasehold.ErrClosed)
		}
	}
}

type reply[T any] struct {
	val T
	err error
}

// answered says what an enter's reply means.
func (q *acquisition) answered(r engine.EnterReply, sent time.Time) (event, *ended) {
	m := q.m
	switch r.Code {
	case engine.Granted:
		return event{kind: granted, deadline: sent.Add(r.Remaining - margin(r.Remaining)), token: r.Token}, nil
	case engine.Queued:
		if q.ticket == 0 {
			q.ticket = r.Now
		}
		q.busy = &r.State
		m.queue(q.w, *m.clock.Load(), r.State)
		return event{kind: waitOn}, nil
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

// leaveQuietly ends an attempt that Redis answered to have left no trace, and
// sends a leave only where a copy of its enter may be under way.
func (q *acquisition) leaveQuietly() {
	if q.w.stray != 0 {
		q.m.giveBack(q.w)
		return
	}
	q.m.forget(q.w)
}

func busyError(s engine.State) *leasehold.BusyError {
	return &leasehold.BusyError{RetryAfter: s.Earliest, InUse: s.InUse, Limit: s.Limit, Waiting: s.Waiting}
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

// left ends an acquisition whose ctx or handle ended: whatever was or may yet
// be granted to it is given back in the background.
func (q *acquisition) left(why error, cause ...error) *ended {
	q.m.mu.Lock()
	if g := q.w.group; g != nil {
		s := g.state
		q.busy = &s
	}
	q.m.mu.Unlock()
	q.m.giveBack(q.w)
	switch {
	case errors.Is(why, leasehold.ErrClosed):
		return endedBy(why)
	case q.busy != nil:
		return endedBy(why, busyError(*q.busy))
	default:
		return &ended{append([]error{why, leasehold.ErrUnavailable}, cause...)}
	}
}

// clock is the server's time now, at the latest; asked for once a handle.
func (q *acquisition) clock(ctx context.Context) (int64, *ended) {
	m := q.m
	for {
		if s := m.clock.Load(); s != nil {
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
