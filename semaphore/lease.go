package semaphore

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"
)

// Lease is permits held. It is renewed in the background until it is released or
// lost. Its methods are safe for concurrent use.
type Lease struct {
	held lease.Lease
	turn *localturns.Turn // with Config.LocalFor: its lease may be in held; else nil
}

// Context is the acquiring ctx, ended also when the lease is lost or given back.
// Work under a lease should run under it. [context.Cause] gives the reason:
// leasehold.ErrLost, leasehold.ErrMaxHold, leasehold.ErrReleased,
// leasehold.ErrClosed, or the acquiring ctx's own. Except at MaxHold, it ends
// before another caller can be granted the permits.
func (l *Lease) Context() context.Context {
	if l.turn != nil {
		return l.turn.Context()
	}
	return l.held.Context()
}

// Release gives the permits back, to the next waiter if there is one. It takes no
// ctx, so that it works after one was cancelled. It bounds itself, for
// any number of callers: to 5 s until it is sent, several times if need be, and to
// the client's ReadTimeout (5 s by default; 8 s if it has none) for the answer.
// One round trip. With Config.LocalFor it costs none where the next turn is this
// process's; where the process queues again, giving back and queuing share a pipeline.
//
// It returns nil the first time, and leasehold.ErrReleased after that and after
// Close. leasehold.ErrLost says that the lease had ended before, so that the work
// under it may have run beside that of others. leasehold.ErrUnavailable says that
// Redis could not confirm; they are then given back in the background.
func (l *Lease) Release() error {
	if l.turn != nil {
		return l.turn.Release("release")
	}
	return l.held.Release("release")
}

// Extend pushes the expiry to ttl from now, at least 100 ms, and never shortens
// it. Use it before a stretch of work that must survive without Redis for longer
// than the configured TTL. One round trip.
//
// Where Redis does not answer, Extend returns within about 4 s and the client's
// ReadTimeout (5 s by default; 8 s if it has none), and at once when ctx ends: its last
// try begins about a second after the call. With Config.Replicas the waits for replicas
// come on top.
//
// Errors: leasehold.ErrInvalid for a ttl that is too short; leasehold.ErrLost;
// leasehold.ErrReleased; leasehold.ErrUnavailable if Redis, or as
// many replicas as Config.Replicas says, did not confirm, or
// ctx ended before it had: the lease then lasts as long as before, or longer.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if l.turn != nil {
		return l.turn.Extend(ctx, ttl)
	}
	return l.held.Extend(ctx, ttl)
}

// ID names the lease in listings. It cannot be used to release it.
func (l *Lease) ID() string {
	if l.turn != nil {
		return l.turn.ID()
	}
	return l.held.ID()
}

// Key is the key as it was passed to Acquire.
func (l *Lease) Key() string {
	if l.turn != nil {
		return l.turn.Key()
	}
	return l.held.Key()
}

// Deadline is until when the lease is surely held if no renewal succeeds from
// now on, by the local monotonic clock: at least 10 ms, or 2 % of the TTL,
// before it ends in Redis. Renewals move it.
func (l *Lease) Deadline() time.Time {
	if l.turn != nil {
		return l.turn.Deadline()
	}
	return l.held.Deadline()
}
