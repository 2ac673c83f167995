// Package lease acquires, holds, renews and gives back leases, which is what the public
// packages have in common. It knows the leased thing only through a [protocol.Protocol]. A [Manager]
// does the work of one handle; a [Lease] is one thing held.
//
// A lease takes this path: [Manager.Acquire] makes an attempt (acquire.go). Its life (internal/life) is a pure state
// machine. The attempt enters (enter.go) and, if it is queued, joins its group (group.go) until a grant wakes its
// caller, which gets a Lease (lease.go). The handle's schedule renews it (attempt.go) until [Lease.Release] (release.go).
//
// Locks: the lock of internal/report is taken before the manager's. The locks of the schedule,
// the inbox, the clocks and the queues are leaves: while one is held, no other lock is taken.
// No call is sent, and no code of a caller runs, under any lock: see docs/architecture.md.
package lease

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/report"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// A Manager serves one handle: it keeps the handle's id, leases and waiters.
type Manager struct {
	cfg     Config
	client  Servers
	single  *call.Client // the client, if rdb decides; nil: a quorum does
	confirm call.Confirm // the zero Confirm: calls wait for no replica
	// handle is 128 random bits in 22 characters, then keys.InSlot if the handle listens in
	// each key's slot, then keys.Keeps if it may keep leases, then '~' and the label if it has one.
	handle string
	seq    atomic.Uint64
	loop   *schedule.Loop
	inbox  Messages
	holds  holdTimes
	events *report.Reporter // nil: none

	keeper Keeper // nil: none; set before the first attempt

	born    time.Time     // the moment 0
	closing chan struct{} // closed when Close begins
	ending  sync.Once     // the end that all calls of Close wait for
	ended   chan struct{} // closed when nothing is left running

	mu        sync.Mutex // guards the fields below, and the fields of waiters that say so
	closed    bool
	running   int                 // operations that Close waits for
	idle      *sync.Cond          // signalled when none is running
	drained   chan struct{}       // Shutdown waits until it is closed; nil: nobody waits for the last lease
	attempts  map[uint64]*attempt // those that enter, wait or hold, by their sequence number
	held      int                 // how many of them hold
	groups    map[string]*group   // the queued ones, by Resource.FirstKey
	watch     watch
	missed    life.Moment // when a reply that may have carried grants was last lost
	resources map[string]protocol.Resource
	goingOn   bool // a continuation is scheduled or under way
}

// Handle returns the handle's id, as the scripts know it.
func (m *Manager) Handle() string { return m.handle }

// Client returns the client that the manager sends its calls with; nil for a quorum.
func (m *Manager) Client() *call.Client { return m.single }

// Do sends a call that is about no attempt, and waits for its outcome.
func (m *Manager) Do(ctx context.Context, c *call.Call) ([]int64, error) { return m.client.Do(ctx, c) }

// Stop starts to give back all leases and ends all waits. It waits for nothing. Call Close
// afterwards, when nobody uses the leases any more.
func (m *Manager) Stop() {
	m.Refuse()
	m.mu.Lock()
	var all []endedLease
	now := m.now()
	for _, a := range m.attempts { // the callers of the others give up by themselves
		all = append(all, a.after(a.life.GiveBack(life.ByClose, now), nil))
	}
	m.mu.Unlock()
	for _, end := range all {
		end.tell()
	}
}

// Refuse ends all waits, and refuses new operations. What is held stays held, and is renewed.
func (m *Manager) Refuse() {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	m.mu.Unlock()
	if first {
		close(m.closing)
	}
}

// Shutdown ends all waits, waits until the holders have given back, and then closes the handle.
// If ctx ends first, it closes the handle all the same and returns an error that matches ctx's.
func (m *Manager) Shutdown(ctx context.Context) error {
	if isClosed(m.ended) {
		return nil
	}
	m.Refuse()
	m.mu.Lock()
	if m.drained == nil {
		m.drained = make(chan struct{})
		m.closeIfDrained()
	}
	drained := m.drained
	m.mu.Unlock()
	var err error
	select {
	case <-drained:
	case <-ctx.Done():
		err = m.fail("shutdown", keys.Escape(m.cfg.Family.Name), ctx.Err(), errHeld)
	}
	return cmp.Or(m.Close(ctx), err)
}

var errHeld = errors.New("some holders had not given back")

// closeIfDrained ends the wait of Shutdown if no lease is held. The handle is closed, so there
// will be none. Called with the lock.
func (m *Manager) closeIfDrained() {
	if m.drained != nil && m.held == 0 && !isClosed(m.drained) {
		close(m.drained)
	}
}

// Close gives back all leases, ends all waits, and returns when nothing is left running. If
// ctx ends first, Close returns an error. The rest then goes on in the background and is over
// when the terms of the leases are.
func (m *Manager) Close(ctx context.Context) error {
	if isClosed(m.ended) {
		return nil
	}
	m.Stop()
	m.ending.Do(func() { go m.end() })
	select {
	case <-m.ended:
		m.events.End()
		return nil
	case <-ctx.Done():
		return m.fail("close", keys.Escape(m.cfg.Family.Name), ctx.Err(), leasehold.ErrUnavailable, errLeft)
	}
}

// end waits until nothing is left running. What runs may still leave something to give back, so
// it is waited for first.
func (m *Manager) end() {
	defer close(m.ended)
	m.mu.Lock()
	for m.running > 0 {
		m.idle.Wait()
	}
	m.mu.Unlock()
	m.inbox.Close()
	m.loop.Close()
	m.client.Settle()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

var errLeft = errors.New("not all was confirmed to be given back")

// maxResources bounds how many keys a handle keeps the Resource of.
const maxResources = 256

// Resource returns the Resource of key. Making one takes ten allocations, so a handle keeps up
// to maxResources of them. A full map drops any one.
func (m *Manager) Resource(key string) (protocol.Resource, error) {
	m.mu.Lock()
	r := m.resources[key]
	m.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := m.cfg.Protocol.Resource(key)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resources) >= maxResources {
		for old := range m.resources {
			delete(m.resources, old) // any one: the iteration order of a map is random
			break
		}
	}
	m.resources[strings.Clone(key)] = r
	return r, nil
}

// begin starts an operation on key. The caller must call done at its end. Close waits for
// operations that have begun; begin refuses new ones once Close has been called.
func (m *Manager) begin(ctx context.Context, op, key string) (protocol.Resource, error) {
	res, err := m.Resource(key)
	if err != nil {
		return nil, m.fail(op, keys.Escape(m.cfg.Family.Name), err)
	}
	return res, m.beginOn(ctx, op, res)
}

// beginOn is begin on the resource res.
func (m *Manager) beginOn(ctx context.Context, op string, res protocol.Resource) error {
	if err := ctx.Err(); err != nil {
		return m.fail(op, res.Label(), err)
	}
	if !m.count() {
		m.done()
		return m.fail(op, res.Label(), leasehold.ErrClosed)
	}
	return nil
}

// count counts an operation in, so that Close waits until done is called for it. It counts
// operations that start after Close has begun, too. It reports whether the handle is still
// open.
func (m *Manager) count() (open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running++
	return !m.closed
}

// done ends an operation that was counted.
func (m *Manager) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running--; m.running == 0 {
		m.idle.Broadcast()
	}
}

// Go runs send on a new goroutine that Close waits for.
func (m *Manager) Go(send func()) {
	m.count()
	m.spawn(send)
}

// spawn runs an operation that was counted on a goroutine of its own.
func (m *Manager) spawn(send func()) {
	go func() {
		defer m.done()
		send()
	}()
}

// Run is RunOn for the resource of key.
func (m *Manager) Run(ctx context.Context, op, key string, bound time.Duration, fn func(ctx context.Context, r protocol.Resource) error) error {
	res, err := m.Resource(key)
	if err != nil {
		return m.Reject(op, key, err)
	}
	return m.RunOn(ctx, op, res, bound, func(ctx context.Context) error { return fn(ctx, res) })
}

// RunOn calls fn for an operation on res, and waits for it until ctx ends or bound is over.
// Errors of fn match leasehold.ErrUnavailable, unless they match ErrInvalid, ErrNoLease or
// ErrClosed.
func (m *Manager) RunOn(ctx context.Context, op string, res protocol.Resource, bound time.Duration, fn func(ctx context.Context) error) error {
	err := m.beginOn(ctx, op, res)
	if err != nil {
		return err
	}
	defer m.done()
	within, cancel := context.WithTimeout(nested.Calm{Context: ctx}, bound)
	defer cancel()
	outcome := make(chan error, 1)
	m.Go(func() {
		err := errNoAnswer // stays if a hook ends the goroutine
		defer func() { outcome <- err }()
		err = fn(within)
	})
	select {
	case err = <-outcome:
	case <-within.Done():
		err = errNoAnswer
	case <-m.closing:
		return m.fail(op, res.Label(), leasehold.ErrClosed)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, leasehold.ErrInvalid), errors.Is(err, leasehold.ErrNoLease), errors.Is(err, leasehold.ErrClosed):
		return m.fail(op, res.Label(), err)
	}
	return m.fail(op, res.Label(), ctx.Err(), leasehold.ErrUnavailable, err)
}

// fail makes the error of an operation on the resource called label.
func (m *Manager) fail(op, label string, errs ...error) error {
	return call.Fail(m.cfg.Package, op, label, errs...)
}

// Reject makes the error of an operation on a key that did not get a lease.
func (m *Manager) Reject(op, key string, why ...error) error {
	label := keys.Escape(m.cfg.Family.Name)
	if r, err := m.Resource(key); err == nil {
		label = r.Label()
	}
	return m.fail(op, label, why...)
}

// JoinLoss returns the error of an operation that ran under a lease. It is err, joined with
// release, the error of giving the lease back, if that says that the lease was lost.
func JoinLoss(err, release error) error {
	if errors.Is(release, leasehold.ErrLost) {
		return errors.Join(err, release)
	}
	return err
}

// holdTimes is a moving average of how long the leases of a handle were held.
type holdTimes struct{ mean atomic.Int64 } // 0: none has been given back yet

// add adds a hold to the average, with a weight of an eighth. If two goroutines call it at the
// same time, one of the holds may be left out.
func (h *holdTimes) add(held time.Duration) {
	old := h.mean.Load()
	mean := int64(held)
	if old != 0 {
		mean = old + (mean-old)/8
	}
	h.mean.CompareAndSwap(old, max(1, mean))
}

// maxBlindRetry bounds RetryAfter if no hold has been observed yet.
const maxBlindRetry = time.Second

// BusyError returns the error of a request that found a resource in state s. RetryAfter
// estimates when the request's turn would come if all before it held as long as others did. It
// is at most the time until the first lease ends by itself.
func (m *Manager) BusyError(s protocol.State) *leasehold.BusyError {
	retry := maxBlindRetry
	if mean := time.Duration(m.holds.mean.Load()); mean > 0 {
		turns := float64(s.Waiting+1) / float64(max(1, s.Limit))
		if s.Total > 0 {
			// The keys that wait for the total take turns.
			turns = max(turns, float64(s.Waiting+1)*float64(max(1, s.Competing))/float64(s.Total))
		}
		retry = time.Duration(min(turns*float64(mean), float64(time.Hour)))
	}
	if first := cmp.Or(s.InTheWay, s.Earliest); first > 0 {
		if !s.AsOf.IsZero() {
			first = max(time.Millisecond, first-time.Since(s.AsOf))
		}
		retry = min(retry, first)
	}
	return &leasehold.BusyError{
		RetryAfter: max(1, retry), InUse: s.InUse, Limit: s.Limit, Waiting: s.Waiting, Total: s.Total, TotalInUse: s.TotalInUse,
	}
}
