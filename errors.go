package leasehold

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrBusy says that nothing was free. A call that does not wait returns it at once, and a
	// call that waits returns it at the end of the wait. [errors.As] with a *[BusyError] tells
	// how busy the key was.
	ErrBusy = errors.New("busy")

	// ErrLost says that a lease ended before its holder gave it back. Either it expired, or
	// its holder was cut off from Redis, or its key was deleted.
	ErrLost = errors.New("lease lost")

	// ErrRevoked says that an operator took the lease away. It also matches ErrLost.
	// [errors.As] with a *[RevokedError] gives the operator's reason.
	ErrRevoked error = &lossError{"lease revoked"}

	// ErrMaxHold says that the lease was held for as long as its family allows. It also
	// matches ErrLost.
	ErrMaxHold error = &lossError{"longest hold reached"}

	// ErrReleased says that the lease had already been given back, by its holder or by the
	// Close of its handle.
	ErrReleased = errors.New("already released")

	// ErrClosed says that the handle is closed.
	ErrClosed = errors.New("handle closed")

	// ErrQueueFull says that as many requests were already waiting as the family allows, for
	// the key or for all keys together. The error also matches ErrBusy, and has its *[BusyError].
	ErrQueueFull = errors.New("queue full")

	// ErrUnavailable says that Redis could not be reached, did not answer, or refused the
	// call. It wraps the cause. If the call was sent, it may have had its effect.
	ErrUnavailable = errors.New("redis unavailable")

	// ErrFenced says that a guarded write carried a fencing token older than one that the
	// guard had already accepted. Nothing was written.
	ErrFenced = errors.New("stale fencing token")

	// ErrInvalid says that the arguments can never be served: a bad key, more permits than the
	// limit, a bad duration, a bad fencing token. The text names the argument, its value and
	// its bound. The same call fails again when it is repeated.
	ErrInvalid = errors.New("invalid argument")

	// ErrNoLease says that there is no lease, waiter or load with that ID to revoke.
	ErrNoLease = errors.New("no such lease")
)

// BusyError tells how busy a key was when Redis last answered. It matches [ErrBusy]. The
// figures are a snapshot of the whole fleet. Use them for logs and for a Retry-After header,
// but not for exact decisions.
type BusyError struct {
	// RetryAfter is the time after which a new attempt is worthwhile. It is an estimate from
	// the hold times that this handle has observed and from the number of waiting requests. It
	// is at most the time until the earliest lease of the key expires if its holder does not
	// renew it. If the total is what limits the request, the earliest lease of the family
	// counts instead. RetryAfter is at most 1 s if this handle has observed no hold yet. It is
	// never 0. For a Retry-After header, round it up to whole seconds.
	RetryAfter time.Duration

	InUse   int // permits that all holders have together
	Limit   int // the limit that the request was compared with
	Waiting int // requests in the queue

	// Total and TotalInUse are set for a semaphore with Config.Total, and are 0 otherwise.
	// Total is the total that the request was compared with. TotalInUse is the number of
	// permits in use, of all keys together.
	Total, TotalInUse int
}

// Error says how many permits were in use and how many requests were waiting.
func (e *BusyError) Error() string {
	if e.Total > 0 {
		return fmt.Sprintf("busy (%d of %d in use, %d waiting; %d of %d in all)", e.InUse, e.Limit, e.Waiting, e.TotalInUse, e.Total)
	}
	return fmt.Sprintf("busy (%d of %d in use, %d waiting)", e.InUse, e.Limit, e.Waiting)
}

// Is reports whether target is ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// RevokedError is the cause of a lease that an operator took away. It matches [ErrRevoked] and
// [ErrLost].
type RevokedError struct {
	Reason string // the operator's reason, 1 to 200 printable bytes
}

// Error says that the lease was revoked, and for which reason.
func (e *RevokedError) Error() string {
	if e.Reason == "" {
		return "lease revoked"
	}
	return "lease revoked: " + e.Reason
}

// Is reports whether target is ErrRevoked or ErrLost.
func (e *RevokedError) Is(target error) bool { return target == ErrRevoked || target == ErrLost }

// lossError is one particular way to lose a lease.
type lossError struct{ text string }

func (e *lossError) Error() string        { return e.text }
func (e *lossError) Is(target error) bool { return target == ErrLost }
