package leasehold

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrBusy says that nothing was free: at once for a call that does not
	// wait, at the end of its ctx for one that does. [errors.As] with a
	// *[BusyError] tells how busy.
	ErrBusy = errors.New("busy")

	// ErrLost says that a lease ended before its holder gave it back: it
	// expired, its holder was cut off, or its key was deleted.
	ErrLost = errors.New("lease lost")

	// ErrRevoked says that an operator took the lease away. It matches ErrLost
	// too.
	ErrRevoked error = &lossError{"lease revoked"}

	// ErrMaxHold says that the lease was held for as long as its family
	// allows. It matches ErrLost too.
	ErrMaxHold error = &lossError{"longest hold reached"}

	// ErrReleased says that this lease was given back already, by its holder
	// or by the Close of its handle.
	ErrReleased = errors.New("already released")

	// ErrClosed says that the handle was closed.
	ErrClosed = errors.New("handle closed")

	// ErrQueueFull says that as many waited already as the family allows.
	ErrQueueFull = errors.New("queue full")

	// ErrUnavailable says that Redis could not be asked, or refused. It wraps
	// the cause.
	ErrUnavailable = errors.New("redis unavailable")

	// ErrFenced says that a guarded write carried a fencing token older than
	// one that the guard had seen. Nothing was written.
	ErrInvalid = errors.New("invalid argument")

	ErrFenced = errors.New("stale fencing token")
)

// BusyError tells how busy a key was when Redis last answered. It matches
// [ErrBusy]. The figures are a snapshot of the whole fleet, for logs and for
// Retry-After headers, not for decisions that need to be exact.
type BusyError struct {
	// RetryAfter is how long until the earliest lease of the key ends if its
	// holder does not renew it: the latest time from which a new try can
	// succeed because of a dead holder. 0 where no lease is held.
	RetryAfter time.Duration
	// InUse is the number of permits held, Limit the cap that they were
	// compared with, Waiting the number of queued requests.
	InUse, Limit, Waiting int
}

// Error says how many permits were in use and how many waited.
func (e *BusyError) Error() string {
	return fmt.Sprintf("busy (%d of %d in use, %d waiting)", e.InUse, e.Limit, e.Waiting)
}

// Is reports that a BusyError is an ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// lossError is a particular way of losing a lease.
type lossError struct{ text string }

func (e *lossError) Error() string        { return e.text }
func (e *lossError) Is(target error) bool { return target == ErrLost }
