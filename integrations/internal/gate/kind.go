package gate

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
)

// Kind says why work was not let in.
type Kind int

// The kinds of errors of Enter.
const (
	// KindUnavailable: Redis did not grant or refuse, or the handle is closed, or the caller
	// left before anything was sent.
	KindUnavailable Kind = iota

	// KindRefused: there was no permit in time, the queue was full, or an operator revoked the place in it.
	KindRefused

	// KindInvalid: the request can never be served, which is a mistake in the program.
	KindInvalid
)

// KindOf returns the kind of an error of Enter.
func KindOf(err error) Kind {
	switch {
	case errors.Is(err, leasehold.ErrInvalid):
		return KindInvalid
	case errors.Is(err, leasehold.ErrBusy), errors.Is(err, leasehold.ErrQueueFull), errors.Is(err, leasehold.ErrRevoked):
		return KindRefused
	default:
		return KindUnavailable
	}
}

// RetryAfter returns after how long a new attempt is worthwhile: the estimate of a BusyError, or 1 s if err has none.
func RetryAfter(err error) time.Duration {
	var busy *leasehold.BusyError
	if errors.As(err, &busy) {
		return busy.RetryAfter
	}
	return time.Second
}
