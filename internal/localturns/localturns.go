// Package localturns passes a lease from one waiter of a process to the next, without a call to Redis, for a bounded
// time. The idea is that of lock cohorting (Dice, Marathe and Shavit, 2012), applied to a lease. It also keeps leases
// that nobody uses for the next caller. The package lies above internal/lease, and only handles with a LocalFor or a
// KeepFor use it.
//
// Requests of one process for the same key, number of permits and limit wait in one line (line.go), each for a turn:
// one caller's use of a lease. A place is a place of the process in the queue in Redis (places.go). Once Redis has
// granted it, it becomes a visit: a lease that serves one turn after the other (turn.go). When LocalFor is over, the
// process gives the lease back and takes a new place, both in one pipeline. With KeepFor a visit may rest between two
// turns (keep.go), and a request that finds none goes its own way (own.go).
//
// Locks: a desk (desk.go) has the lines of a key. Its lock is taken before those of the shelf, of
// internal/lease and of the inbox. The handle's lock is held while a desk's is tried, never while
// one is waited for. No call is sent while any is held.
package localturns

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/report"
)

// The bounds of LocalFor and KeepFor.
const (
	minLocalFor = time.Millisecond
	maxLocalFor = time.Second
	minKeepFor  = time.Millisecond
	maxKeepFor  = 10 * time.Second
)

// Check returns what is wrong with a LocalFor and a KeepFor in a Config that has this ttl.
func Check(localFor, keepFor, ttl time.Duration) []error {
	if ttl = cmp.Or(ttl, lease.DefaultTTL); ttl < lease.MinTTL {
		return nil // it has an error of its own
	}
	return []error{
		check("LocalFor", localFor, minLocalFor, min(ttl/2, maxLocalFor), "for strict order across the fleet"),
		check("KeepFor", keepFor, minKeepFor, min(ttl/2, maxKeepFor), "to keep nothing"),
	}
}

func check(field string, is, least, most time.Duration, zero string) error {
	return keys.Unless(is == 0 || is >= least && is <= most, field,
		"is %v; want %v to %v (half of TTL, and at most %v), or 0 %s", is, least, most, most, zero)
}

// Config is the part of a handle's Config that is used here. The bounds apply to each turn.
type Config struct {
	LocalFor   time.Duration // 0: no turn is passed on to a caller that waits
	Settable   bool          // limits may be set at run time
	KeepFor    time.Duration // 0: nothing is kept
	MaxHold    time.Duration // 0 = no bound
	MaxWaiters int           // 0 = no bound
	MaxWait    time.Duration // 0 = as long as ctx allows
}

// Handle holds the desks of one mutex or semaphore handle.
type Handle struct {
	m       *lease.Manager
	cfg     Config
	stopped atomic.Bool // nothing is kept any more
	shelf   shelf

	mu    sync.Mutex
	desks map[string]*desk // by key
	named map[string]*desk // by protocol.Resource.FirstKey, with KeepFor
}

// New returns a Handle that takes its leases from m.
func New(m *lease.Manager, cfg Config) *Handle {
	h := &Handle{m: m, cfg: cfg, desks: map[string]*desk{}, named: map[string]*desk{}}
	if cfg.KeepFor > 0 {
		m.SetKeeper(h)
	}
	return h
}

// Acquire waits for a turn and returns it. Its errors are those of [lease.Manager.Acquire]. If there is no error and no
// turn, the caller has a lease of its own, into. If the line is idle, the caller's lease is stored in into. That lease
// may outlive the call and the turn, because it may serve later turns too.
func (h *Handle) Acquire(ctx context.Context, a lease.Attempt, into *lease.Lease) (*Turn, error) {
	if h.cfg.KeepFor > 0 {
		if t, err := h.fromMemory(ctx, a); t != nil || err != nil {
			return t, err
		}
	}
	if h.cfg.LocalFor == 0 || !a.Wait {
		return h.acquireOwn(ctx, a, into)
	}
	if nested.Permits(ctx, h.m, a.Key) > 0 {
		// The turn that ctx descends from may be the one that the caller would wait behind.
		_, err := h.m.Acquire(ctx, a, into)
		return nil, err
	}
	began := h.m.Events().Now()
	var giveUpAt time.Time // when MaxWait is over; zero = never
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
	if events := h.m.Events(); events != nil {
		e := report.Acquired(ctx, a.Permits, waited, began, err)
		e.Kept = err == nil && t.joined.IsZero()
		events.Observe(e)
	}
	return t, err
}

// maxRestarts bounds how often one Acquire starts again because its turn was over before the caller had it.
const maxRestarts = 4

// errTurnOver means that the caller's turn came, and was lost again, before the caller had it: the caller was still
// waiting for the reply to its own enter, or it had not run since it was woken.
var errTurnOver = errors.New("the turn was lost before the reply to the call's own request came")

func (h *Handle) acquire(ctx context.Context, a lease.Attempt, into *lease.Lease, giveUpAt time.Time) (_ *Turn, waited bool, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, waited, h.m.Reject(a.Op, a.Key, err)
	}
	if h.m.Closed() {
		return nil, waited, h.m.Reject(a.Op, a.Key, leasehold.ErrClosed)
	}
	ln, err := h.lock(a.Key, a.Permits, a.Limit)
	if err != nil {
		return nil, waited, h.m.Reject(a.Op, a.Key, err)
	}
	defer ln.mu.Unlock()
	if t := ln.resume(ctx, a.Op); t != nil { // it came to rest after fromMemory had looked
		return t, waited, t.come()
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
	if !ln.busyNow() {
		// The first caller enters on its own goroutine, which is fastest if nobody
		// competes. It waits at the front of the line.
		first := &firstTurn{turn: Turn{line: ln, op: a.Op, parent: nested.Hold{Calm: nested.Calm{Context: ctx}}}, visit: visit{line: ln, lease: into}}
		t = &first.turn
		ln.push(t)
		if err := ln.enterFirst(ctx, first, maxWait, giveUpAt); err != nil {
			return nil, waited, err
		}
		waited = !t.decided()
	} else {
		t, waited = &Turn{line: ln, op: a.Op, parent: nested.Hold{Calm: nested.Calm{Context: ctx}}}, true
		ln.push(t)
		ln.takePlaces()
		ln.watchLimit()
	}
	if err := t.await(ctx, maxWait); err != nil {
		return nil, waited, err
	}
	return t, waited, nil
}

// firstTurn holds the turn, the place and the visit of a caller that finds its line idle. All three are one allocation.
type firstTurn struct {
	turn  Turn
	visit visit
	place place
}

// await waits until the turn has come, ctx ends, MaxWait is over or the handle is closed.
// The line is locked, except during the wait.
func (t *Turn) await(ctx context.Context, maxWait <-chan time.Time) error {
	if t.decided() {
		return t.come()
	}
	t.wake = make(chan struct{})
	awake := false
	defer func() {
		if !awake { // ctx panicked
			t.line.abandon(t)
		}
	}()
	came, why := t.sleep(ctx, maxWait)
	if awake = true; came || t.err != nil {
		return t.come()
	}
	return t.line.leave(t, why)
}

// sleep waits until the turn is decided, and then returns true. If something else ends the wait first, it returns false
// and what tells the reason, for leave. sleep unlocks the line for as long as it waits.
func (t *Turn) sleep(ctx context.Context, maxWait <-chan time.Time) (came bool, why func() error) {
	t.line.mu.Unlock()
	defer t.line.mu.Lock()
	select {
	case <-t.wake:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err
	case <-maxWait:
		return false, maxWaitIsOver
	case <-t.line.h.m.Closing():
		return false, isClosed
	}
}

func isClosed() error      { return leasehold.ErrClosed }
func maxWaitIsOver() error { return nil }

// come returns the outcome of a wait whose turn is decided. The line is locked.
func (t *Turn) come() error {
	if t.err != nil {
		return t.err
	}
	ln := t.line
	if ln.h.m.Closed() { // Close may have looked for turns before this one came
		return ln.leave(t, isClosed)
	}
	if t.cond != lost {
		t.handed = true
		return nil
	}
	ln.abandon(t)
	return errTurnOver
}

// leave ends the wait of t and returns its error. why tells the reason for the end; nil means that MaxWait
// is over. It may be code of the caller's ctx, as may the error that it returns: both may hang, or call the
// handle. So the line is unlocked for them, once t has left it.
func (ln *line) leave(t *Turn, why func() error) error {
	m := ln.h.m
	answered, busy, silence := ln.answered(t), ln.busy(), cmp.Or(ln.lastErr, errNoAnswer)
	ln.abandon(t)
	ln.mu.Unlock()
	defer ln.mu.Lock()
	switch reason := why(); {
	case errors.Is(reason, leasehold.ErrClosed):
		return m.Reject(t.op, ln.key, reason)
	case answered:
		return m.Reject(t.op, ln.key, reason, busy)
	default:
		return m.Reject(t.op, ln.key, reason, leasehold.ErrUnavailable, silence)
	}
}

var errNoAnswer = errors.New("no answer in time")

// answered reports whether Redis has answered for t, and has not fallen silent since: a lease
// of the line is held, or a place waits, or either was so a moment ago, while t waited. What
// Redis said before t came does not count. The line is locked.
func (ln *line) answered(t *Turn) bool {
	if len(ln.visits) > 0 {
		return true
	}
	for _, p := range ln.places {
		if p.queued != nil && !p.queued.Silent() {
			return true
		}
	}
	return ln.lastErr == nil && !ln.heard.Before(t.joined) && time.Since(ln.heard) < life.AskEvery
}
