package lease

import (
	"context"
	"errors"
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

	// Of a flight:
	Look   engine.Look
	Parent context.Context // of the lease's Context; nil = the acquiring one
	Asked  func()          // called before each enter is sent
	Waits  func()          // called whenever it has to wait: for its turn, or for Redis
}

// Acquire takes what a asks for and makes into the lease of it. It returns when
// ctx ends, wherever it is; what it may have been granted by then is given back
// in the background.
func (m *Manager) Acquire(ctx context.Context, a Attempt, into *Lease) error {
	res, err := m.resource(a.Key)
	if err != nil {
		return m.fail(a.Op, keys.Escape(m.cfg.Family.Name), err)
	}
	if err := ctx.Err(); err != nil {
		return m.fail(a.Op, res.Label, err, leasehold.ErrUnavailable)
	}
	if !m.begin() {
		return m.fail(a.Op, res.Label, leasehold.ErrClosed)
	}
	defer m.done()
	q := m.newAcquisition(a, res)
	if _, end := q.run(ctx, into); end != nil {
		return m.fail(a.Op, res.Label, end.errs...)
	}
	return q.started(into)
}

// started is what Acquire returns for a lease that has started.
func (q *acquisition) started(into *Lease) error {
	m := q.m
	select {
	case <-m.closing:
		into.abandon(leasehold.ErrClosed) // Close may have been too early to see it
		return m.fail(q.Op, q.res.Label, leasehold.ErrClosed)
	default:
		return nil
	}
}

// acquisition is one Acquire under way.
type acquisition struct {
	m   *Manager
	res *engine.Resource
	Attempt

	w        *waiter
	ahead    *entering     // its first enter, where it was sent with others
	ticket   int64         // place in the queue, once there was one
	busy     *engine.State // what a queued reply said
	failures int           // calls in a row without an answer
	failed   time.Time     // since when
	restarts int
	lastErr  error
}

func (m *Manager) newAcquisition(a Attempt, res *engine.Resource) *acquisition {
	q := &acquisition{m: m, Attempt: a, res: res}
	q.register()
	return q
}

// ended is why an acquisition came to nothing.
type ended struct{ errs []error }

func endedBy(errs ...error) *ended { return &ended{errs} }

// register makes a new attempt: a new member, known to the handle before it is
// sent, since the grant may come by another way before the reply.
func (q *acquisition) register() {
	m := q.m
	seq := m.seq.Add(1)
	q.w = &waiter{req: engine.NewRequest(q.res, m.handle, seq, q.Permits, m.cfg.TTL, q.Limit)}
	if !q.Wait {
		return // never queued, so nobody else grants to it
	}
	q.w.told = make(chan struct{}, 1)
	m.mu.Lock()
	m.waiters[seq] = q.w
	m.mu.Unlock()
}

// run enters until it is granted, refused or ended, or until there is a result
// to a flight. What it returns without an end is granted, found or landed.
func (q *acquisition) run(ctx context.Context, into *Lease) (event, *ended) {
	for {
		got, end := q.enter(ctx)
		if end == nil && got.kind == waitOn {
			q.waits()
			got, end = q.wait(ctx)
		}
		if end != nil {
			return event{}, end
		}
		switch got.kind {
		case granted:
			if into.start(ctx, q, got) {
				return got, nil
			}
			// The grant was over before it could be used.
			q.lastErr = errLate
			if end := q.again(); end != nil {
				return event{}, end
			}
		case refused:
			q.m.forget(q.w)
			return event{}, endedBy(tooMany(q.Permits, got.limit))
		case failed:
			q.m.giveBack(q.w)
			return event{}, endedBy(leasehold.ErrUnavailable, got.err)
		case found, landed:
			q.leaveQuietly()
			return got, nil
		case enterAgain:
		}
	}
}

func (q *acquisition) waits() {
	if q.Waits != nil {
		q.Waits()
	}
}

var errLate = errors.New("the reply came later than the lease lasts")

func tooMany(permits, limit int) error {
	return keys.Invalid("asks for %d permits; the limit is %d", permits, limit)
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
