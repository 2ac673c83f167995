package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/renew"
)

type condition int

const (
	held condition = iota
	lost
	released
)

// Lease is one thing held: permits of a key, or a lock. It is made by Acquire
// in place, so that the packages' types hold it without another allocation.
type Lease struct {
	m      *Manager
	key    string
	req    *engine.Request
	token  uint64
	parent context.Context // the acquiring one
	maxEnd time.Time       // MaxHold, by the local clock; zero = none
	stray  int64           // see waiter.stray
	entry  renew.Entry

	mu       sync.Mutex
	cond     condition
	alone    bool      // of a flight: held only as long as others wait for it
	deadline time.Time // until when it is surely ours
	renewAt  time.Time
	failure  error     // of the last renewal, nil where it was answered
	why      error     // it is over: a sentinel,
	cause    error     // and what led to that, if known
	back     *giveBack // once MaxHold ended it: in its place in the loop
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

// start makes l the lease of a granted acquisition, and has it renewed. False:
// the grant is over already.
func (l *Lease) start(ctx context.Context, q *acquisition, e event) bool {
	m, now := q.m, time.Now()
	if !e.deadline.After(now) {
		return false
	}
	if q.Parent != nil {
		ctx = q.Parent
	}
	l.m, l.key, l.req, l.token, l.parent = m, q.Key, q.w.req, e.token, ctx
	l.stray, l.deadline = q.w.stray, e.deadline
	if m.cfg.MaxHold > 0 {
		l.maxEnd = now.Add(m.cfg.MaxHold)
	}
	m.mu.Lock()
	delete(m.waiters, q.w.req.Seq)
	m.ungroup(q.w)
	closed := m.closed
	if !closed {
		m.leases[l] = struct{}{}
	}
	m.mu.Unlock()
	if closed {
		return false // given back; the next enter finds the handle closed
	}
	l.plan(now)
	at, slack := l.next()
	m.loop.Put(&l.entry, l, at, slack)
	return true
}

// plan sets when to renew: after a third of what is left, spread by a tenth.
// Called with the lock, or before anybody else has l.
func (l *Lease) plan(now time.Time) {
	left := max(0, min(l.deadline.Sub(now), l.req.TTL))
	l.renewAt = now.Add(left/3 - rand.N(left/30+1))
}

// next is when Due has something to do, and how much earlier it may be called.
func (l *Lease) next() (time.Time, time.Duration) {
	at := l.renewAt
	slack := l.req.TTL / 24
	if l.deadline.Before(at) {
		at, slack = l.deadline, 0
	}
	if !l.maxEnd.IsZero() && l.maxEnd.Before(at) {
		at, slack = l.maxEnd, 0
	}
	return at, slack
}

// Due ends the lease when its time is over, and renews it before.
func (l *Lease) Due(now time.Time, calls []*engine.Call) ([]*engine.Call, time.Time, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.back != nil:
		return l.back.Due(now, calls)
	case l.cond != held:
		return calls, time.Time{}, 0
	case !l.maxEnd.IsZero() && !now.Before(l.maxEnd):
		l.lose(leasehold.ErrMaxHold, nil)
		l.back = l.newGiveBack()
		return l.back.Due(now, calls)
	case !now.Before(l.deadline):
		// Nothing is given back here: the holder may need the margin to stop.
		// It is when it calls Release; else the server's term is over by itself.
		l.lose(leasehold.ErrLost, l.failure)
		return calls, time.Time{}, 0
	}
	c := l.renewal(now)
	c.Done = func(v []int64, err error) { l.renewed(now, v, err) }
	// If no answer comes, again after a quarter of what is left.
	again := min(max(l.deadline.Sub(now)/4, 5*time.Millisecond), time.Second)
	l.renewAt = now.Add(again)
	at, slack := l.next()
	return append(calls, c), at, min(slack, again/4)
}

func (l *Lease) renewal(now time.Time) *engine.Call {
	node := l.m.eng.Node(l.req.Resource)
	if l.alone {
		return l.req.RenewAlone(node, l.term(now), l.stray)
	}
	return l.req.Renew(node, l.term(now))
}

// term is how long to renew for: the TTL, or what MaxHold leaves, with the
// margin that the deadline lies before it.
func (l *Lease) term(now time.Time) time.Duration {
	if l.maxEnd.IsZero() {
		return l.m.cfg.TTL
	}
	return within(l.m.cfg.TTL, l.maxEnd.Sub(now))
}

// renewed takes the outcome of a renewal that was sent at sent.
func (l *Lease) renewed(sent time.Time, v []int64, err error) {
	var remaining time.Duration
	if err == nil {
		remaining, err = engine.ParseRenew(v)
	}
	l.mu.Lock()
	if l.cond != held {
		l.mu.Unlock()
		return
	}
	l.failure = err
	switch {
	case err != nil && wrongType(err):
		l.lose(leasehold.ErrLost, err)
	case err != nil:
		// The next try is scheduled; the deadline stands.
	case remaining == engine.Unwanted:
		l.lose(errUnwanted, nil)
	case remaining == 0:
		l.lose(leasehold.ErrLost, errGone)
	default:
		l.extended(sent, remaining)
	}
	if l.cond != held {
		l.mu.Unlock()
		l.m.loop.Remove(&l.entry)
		return
	}
	at, slack := l.next()
	l.mu.Unlock()
	if err == nil {
		l.m.loop.Put(&l.entry, l, at, slack)
	}
}

// errUnwanted is why a flight's lease was given back for which nobody waited.
var errUnwanted = errors.New("nobody waits for it any more")

// errNoAnswer explains an outcome that is not known.
var errNoAnswer = errors.New("no answer in time")

// errGone explains a loss that the server told of.
var errGone = errors.New("it has ended on the server")

func wrongType(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }

// extended moves the deadline to what a renewal sent at sent left: a renewal
// never shortens, so that an older answer that says less is no news.
func (l *Lease) extended(sent time.Time, remaining time.Duration) {
	if d := sent.Add(remaining - margin(remaining)); d.After(l.deadline) {
		l.deadline = d
	}
	l.plan(time.Now())
}

// lose ends the lease's Context: from here on it is not ours. Called with the
// lock.
func (l *Lease) lose(why, cause error) {
	l.cond = lost
	l.why, l.cause = why, cause
	if l.cancel != nil {
		l.cancel(l.fail("hold"))
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.leases, l)
}

// Context is the acquiring ctx, ended when the lease is lost or given back. It
// is made when first asked for: many holders never do.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(l.parent)
		if l.cond != held {
			l.cancel(l.fail("hold"))
		}
	}
	return l.ctx
}

// Deadline is until when the lease is surely ours if nothing more succeeds.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Key is the key as its user wrote it.
func (l *Lease) Key() string { return l.key }

// Token is the fencing token, 0 where there is none.
func (l *Lease) Token() uint64 { return l.token }

// ID names the lease in listings. It is not the owner id.
func (l *Lease) ID() string { return l.req.ID() }
