package multi

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/mutex"
)

// Lease is several things that are held. Each is renewed in the background until the Lease is
// released, or that thing is lost. Its methods are safe for concurrent use.
type Lease struct {
	items []*taken
	ctx   context.Context

	mu       sync.Mutex
	released bool
}

// Context returns a child of the ctx of Acquire that also ends when the first of the items is
// lost, and when the Lease is released. [context.Cause] says which item, and why, as for that
// item alone.
func (l *Lease) Context() context.Context { return l.ctx }

// Token returns the fencing token of the lock of key of m. It is 0 if the Lease has no such
// lock.
func (l *Lease) Token(m *mutex.Mutex, key string) uint64 {
	for _, one := range l.items {
		if one.locks == m && m != nil && one.part.Attempt.Key == key {
			return one.lease.Token()
		}
	}
	return 0
}

// Deadline returns the time until which all items are surely held if no renewal succeeds from
// now on: the earliest of theirs.
func (l *Lease) Deadline() (earliest time.Time) {
	for i, one := range l.items {
		if at := one.lease.Deadline(); i == 0 || at.Before(earliest) {
			earliest = at
		}
	}
	return earliest
}

// Release gives all items back, in one round trip per handle and server. The caller must call it
// even if an item was lost.
//
// Release returns nil the first time, and leasehold.ErrReleased after that, and if the handle of
// an item was closed. leasehold.ErrLost says that an item had ended before.
// leasehold.ErrUnavailable says that Redis could not confirm; the item is then given back in the
// background. The error joins those of all items. Release takes no ctx, and bounds itself as the
// Release of a single lease does.
func (l *Lease) Release() error {
	const op = "release"
	l.mu.Lock()
	again := l.released
	l.released = true
	l.mu.Unlock()
	if again {
		return call.Fail(pkg, op, l.items[0].label, leasehold.ErrReleased)
	}
	errs := make([]error, len(l.items))
	seats := call.NewBatch(len(l.items))
	var all sync.WaitGroup
	for i, one := range l.items[1:] {
		errs[i+1] = one.part.Manager.Reject(op, one.part.Attempt.Key, leasehold.ErrUnavailable) // stays if a hook ends the goroutine
		all.Go(func() { errs[i+1] = one.lease.ReleaseTogether(op, seats[i+1]) })
	}
	errs[0] = l.items[0].lease.ReleaseTogether(op, seats[0])
	all.Wait()
	return cmp.Or(one(errs), errors.Join(errs...))
}

// one returns the error if there is only one.
func one(errs []error) (only error) {
	for _, err := range errs {
		if err != nil && only != nil {
			return nil
		}
		only = cmp.Or(err, only)
	}
	return only
}
