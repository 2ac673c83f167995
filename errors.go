package leasehold

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrBusy says that nothing was free: at once for a call that does not
	// wait, at the end of the wait for a call that does. [errors.As] with a
	// *[BusyError] tells how busy the key was.
	ErrBusy = errors.New("busy")

	// ErrLost says that a lease ended before its holder gave it back: it
	// expired, its holder was cut off, or its key was deleted.
	ErrLost = errors.New("lease lost")

	// ErrRevoked says that an operator took the lease away. It matches ErrLost
	// too. [errors.As] with a *[RevokedError] gives the operator's reason.
	ErrRevoked error = &lossError{"lease revoked"}

	// ErrMaxHold says that the lease was held for as long as its family
	// allows. It matches ErrLost too.
	ErrMaxHold error = &lossError{"longest hold reached"}

	// ErrReleased says that this lease was given back already, by its holder
	// or by the Close of its handle.
	ErrReleased = errors.New("already released")

	// ErrClosed says that the handle was closed.
	ErrClosed = errors.New("handle closed")

	// ErrQueueFull says that as many callers were waiting already as the family
	// allows.
	ErrQueueFull = errors.New("queue full")

	// ErrUnavailable says that Redis could not be asked, did not answer, or
	// refused. It wraps the cause. The call may have had its effect if something
	// was sent.
	ErrUnavailable = errors.New("redis unavailable")

	// ErrFenced says that a guarded write carried a fencing token older than
	// one that the guard had seen. Nothing was written.
	ErrFenced = errors.New("stale fencing token")

	// ErrInvalid says that the arguments can never be served: a bad key, more
	// permits than the limit, a bad duration, a bad fencing token. The text names
	// the argument, its value and its bound. A repeated call fails again.
	ErrInvalid = errors.New("invalid argument")

	// ErrNoLease says that there is no lease, waiter or load of that ID to
	// revoke.
	ErrNoLease = errors.New("no such lease")
)

// BusyError tells how busy a key was when Redis last answered. It matches
// [ErrBusy]. The figures are a snapshot of the whole fleet. They are fit for
// logs and for a Retry-After header, but not for exact decisions.
type BusyError struct {
	// RetryAfter is when a new attempt is worthwhile, fit for a Retry-After header: an
	// estimate from the hold times that this handle has observed and the number of
	// requests that wait. It is at most the time until the earliest lease of the key
	// expires if its holder does not renew it, and at most 1 s where no hold was
	// observed yet. It is never 0: an HTTP header rounds it up to whole seconds.
	RetryAfter time.Duration

	InUse   int // permits held, of all holders
	Limit   int // the limit that the request was compared with
	Waiting int // queued requests

	// Of a semaphore with Config.Total; else 0. Total is what the request was compared
	// with, TotalInUse the permits of all keys together.
	Total, TotalInUse int
}

// Error says how many permits were in use and how many waited.
func (e *BusyError) Error() string {
	if e.Total > 0 {
		return fmt.Sprintf("busy (%d of %d in use, %d waiting; %d of %d in all)", e.InUse, e.Limit, e.Waiting, e.TotalInUse, e.Total)
	}
	return fmt.Sprintf("busy (%d of %d in use, %d waiting)", e.InUse, e.Limit, e.Waiting)
}

// Is reports that a BusyError is an ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// RevokedError is the cause of a lease that an operator took away. It matches
// [ErrRevoked] and [ErrLost].
type RevokedError struct {
	Reason string // the operator's, 1 to 200 printable bytes
}

// Error says that the lease was revoked, and why.
func (e *RevokedError) Error() string {
	if e.Reason == "" {
		return "lease revoked"
	}
	return "lease revoked: " + e.Reason
}

// Is reports that a RevokedError is an ErrRevoked and an ErrLost.
func (e *RevokedError) Is(target error) bool { return target == ErrRevoked || target == ErrLost }

// lossError is a particular way of losing a lease.
type lossError struct{ text string }

func (e *lossError) Error() string        { return e.text }
func (e *lossError) Is(target error) bool { return target == ErrLost }
