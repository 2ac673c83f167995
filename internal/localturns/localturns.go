// Package localturns passes a lease from one waiter of a process to the next, without
// a call to Redis, for a bounded time. It lies above internal/lease, which knows
// nothing of it: a handle without LocalFor does not come here.
//
// The requests of a process for the same key, weight and limit stand in one line
// (line.go). A line has visits, which are leases that Redis granted, and places, which
// are places in the queue there. A visit serves one turn after the other (turn.go).
// When its time is over, it is given back and a new place is taken in one pipeline.
//
// Locks: that of the handle is taken before a line's, and a line's before those of
// internal/lease. No call is sent under either.
package localturns

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// The bounds of LocalFor.
const (
	minLocalFor = time.Millisecond
	maxLocalFor = time.Second
)

// Check finds what is wrong with the LocalFor of a Config with this ttl.
func Check(localFor, ttl time.Duration) []error {
	if ttl == 0 {
		ttl = lease.DefaultTTL
	}
	most := min(ttl/2, maxLocalFor)
	if localFor == 0 || localFor >= minLocalFor && localFor <= most || ttl < lease.MinTTL {
		return nil // a bad TTL has an error of its own
	}
	return []error{keys.Bad("LocalFor", "is %v; want %v to %v (half of TTL, and at most %v), or 0 for strict order across the fleet", localFor, minLocalFor, most, maxLocalFor)}
}

// Config is what a handle's Config comes to. The bounds are those of each turn.
type Config struct {
	LocalFor   time.Duration
	MaxHold    time.Duration // 0: no bound
	MaxWaiters int           // 0: no bound
	MaxWait    time.Duration // 0: as long as ctx lives
}

// Handle has the lines of one handle.
type Handle struct {
	m   *lease.Manager
	cfg Config

	mu    sync.Mutex
	lines map[lineName]*line
}

// lineName names a line: requests of another weight or limit wait beside it.
type lineName struct {
	key            string
	permits, limit int
}

// New makes a Handle over m.
func New(m *lease.Manager, cfg Config) *Handle {
	return &Handle{m: m, cfg: cfg, lines: map[lineName]*line{}}
}

// maxIdleLines bounds the lines that are kept though nobody uses them.
const maxIdleLines = 256

// lock returns the line of a request, locked. An error says that there is no such key.
func (h *Handle) lock(key string, permits, limit int) (*line, error) {
	name := lineName{key, permits, limit}
	h.mu.Lock()
	defer h.mu.Unlock()
	ln := h.lines[name]
	if ln != nil {
		ln.mu.Lock()
		return ln, nil
	}
	if _, err := h.m.Resource(key); err != nil {
		return nil, err
	}
	h.dropIdle()
	name.key = strings.Clone(key)
	ln = &line{h: h, name: name, most: max(1, limit/permits)}
	h.lines[name] = ln
	ln.mu.Lock()
	return ln, nil
}

// dropIdle drops a few idle lines where there are many. Nobody is about to use one: a
// line is locked before the handle's lock is given up. Called with the handle's lock.
func (h *Handle) dropIdle() {
	if len(h.lines) < maxIdleLines {
		return
	}
	looks := 8
	for name, ln := range h.lines {
		if ln.mu.TryLock() {
			if ln.idle() {
				delete(h.lines, name)
			}
			ln.mu.Unlock()
		}
		if looks--; looks == 0 {
			return
		}
	}
}

// Acquire takes a turn. Its errors are those of [lease.Manager.Acquire]. into is room for
// the lease of a caller that finds its line idle; the lease may outlive the call and the
// turn.
func (h *Handle) Acquire(ctx context.Context, a lease.Attempt, into *lease.Lease) (*Turn, error) {
	began := h.m.EventTime()
	var giveUpAt time.Time // when MaxWait is over; zero: never
	if h.cfg.MaxWait > 0 {
		giveUpAt = time.Now().Add(h.cfg.MaxWait)
	}
	t, waited, err := h.acquire(ctx, a, into, giveUpAt)
	for restarts := 0; err == errTurnOver; restarts++ {
		if restarts == maxRestarts {
			err = h.m.Reject(a.Op, a.Key, leasehold.ErrUnavailable, errTurnOver)
			break
		}
		t, waited, err = h.acquire(ctx, a, new(lease.Lease), giveUpAt)
	}
	h.m.TurnAcquired(ctx, a.Permits, waited, began, err)
	return t, err
}

// maxRestarts bounds how often one Acquire begins anew because its turn was over before
// its caller could begin it.
const maxRestarts = 4

// errTurnOver says that a turn came and was lost while its caller still waited for the
// reply to an enter of its own.
var errTurnOver = errors.New("the turn was lost before the reply to the call's own request came")

func (h *Handle) acquire(ctx context.Context, a lease.Attempt, into *lease.Lease, giveUpAt time.Time) (_ *Turn, waited bool, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, waited, h.m.Reject(a.Op, a.Key, err)
	}
	select {
	case <-h.m.Closing():
		return nil, waited, h.m.Reject(a.Op, a.Key, leasehold.ErrClosed)
	default:
	}
	ln, err := h.lock(a.Key, a.Permits, a.Limit)
	if err != nil {
		return nil, waited, h.m.Reject(a.Op, a.Key, err)
	}
	defer ln.mu.Unlock()
	if !a.Wait {
		t, err := ln.try(ctx, a.Op, into)
		return t, waited, err
	}
	if h.cfg.MaxWaiters > 0 && ln.waiting() >= h.cfg.MaxWaiters {
		return nil, waited, h.m.Reject(a.Op, a.Key, leasehold.ErrQueueFull, ln.busy())
	}
	var maxWait <-chan time.Time
	if !giveUpAt.IsZero() {
		limit := time.NewTimer(time.Until(giveUpAt))
		defer limit.Stop()
		maxWait = limit.C
	}
	var t *Turn
	if ln.idle() {
		// The first caller enters on its own goroutine: nothing is quicker where nobody
		// competes. It stands at the front of the line.
		first := &firstTurn{turn: Turn{line: ln, op: a.Op, parent: ctx}, visit: visit{line: ln, lease: into}}
		t = &first.turn
		ln.push(t)
		if err := ln.enterFirst(ctx, first, maxWait, giveUpAt); err != nil {
			return nil, waited, err
		}
		waited = !t.decided()
	} else {
		t, waited = &Turn{line: ln, op: a.Op, parent: ctx}, true
		ln.push(t)
		ln.takePlaces()
	}
	if err := t.await(ctx, maxWait); err != nil {
		return nil, waited, err
	}
	return t, waited, nil
}

// firstTurn is the turn of a caller that finds its line idle, with its place and its visit:
// they are one allocation.
type firstTurn struct {
	turn  Turn
	visit visit
	place place
}

// await waits until the turn has come, or for the first of what ends the wait. Called with
// the lock, which is free meanwhile.
func (t *Turn) await(ctx context.Context, maxWait <-chan time.Time) error {
	if t.decided() {
		return t.come()
	}
	t.wake = make(chan struct{})
	came, why := t.sleep(ctx, maxWait)
	if came {
		return t.come()
	}
	return t.line.leave(t, why)
}

// sleep waits, without the lock, until the turn is decided (came), or until something else
// ends the wait. why is what that was; nil: MaxWait is over.
func (t *Turn) sleep(ctx context.Context, maxWait <-chan time.Time) (came bool, why error) {
	t.line.mu.Unlock()
	defer t.line.mu.Lock()
	select {
	case <-t.wake:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-maxWait:
		return false, nil
	case <-t.line.h.m.Closing():
		return false, leasehold.ErrClosed
	}
}

// come is the outcome of a wait that ended because the turn has come, or never will. Called
// with the lock.
func (t *Turn) come() error {
	if t.err != nil {
		return t.err
	}
	ln := t.line
	select {
	case <-ln.h.m.Closing(): // Close may have been too early to see the turn
		return ln.leave(t, leasehold.ErrClosed)
	default:
	}
	if t.cond != lost {
		t.handed = true
		return nil
	}
	ln.abandon(t)
	return errTurnOver
}

// leave ends the wait of t because of why; nil: MaxWait is over. Called with the lock.
func (ln *line) leave(t *Turn, why error) error {
	m := ln.h.m
	reached, busy := ln.visits > 0 || ln.queued > 0, ln.busy()
	ln.abandon(t)
	switch {
	case errors.Is(why, leasehold.ErrClosed):
		return m.Reject(t.op, ln.name.key, why)
	case why == nil && reached:
		return m.Reject(t.op, ln.name.key, busy)
	case why == nil && ln.lastErr == nil:
		return m.Reject(t.op, ln.name.key, busy)
	case why == nil:
		return m.Reject(t.op, ln.name.key, leasehold.ErrUnavailable, ln.lastErr)
	case reached:
		return m.Reject(t.op, ln.name.key, why, busy)
	default:
		return m.Reject(t.op, ln.name.key, why, leasehold.ErrUnavailable)
	}
}
