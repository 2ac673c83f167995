package semaphore

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Lease is a number of permits that are held. It is renewed in the background until it is
// released or lost. Its methods are safe for concurrent use. It must not be copied.
type Lease struct {
	held lease.Lease
	turn *localturns.Turn // set with Config.LocalFor; its lease may be held
}

// holding returns what the caller holds: a turn on a lease, or a lease of its own.
func (l *Lease) holding() localturns.Holding {
	if l.turn != nil {
		return l.turn
	}
	return &l.held
}

// Context returns a child of the ctx of Acquire that also ends when the lease is lost or given
// back. Run the work under this Context. If the lease cannot be renewed, the Context ends some
// time before another caller can be granted the permits. At MaxHold the permits are free as
// soon as the Context has ended. If the lease is revoked or its key is deleted, the permits are
// free at once, and the Context ends when the holder learns of it.
//
// [context.Cause] gives the reason: leasehold.ErrLost, leasehold.ErrRevoked,
// leasehold.ErrMaxHold, leasehold.ErrReleased, leasehold.ErrClosed, or the cause of the ctx of
// Acquire.
func (l *Lease) Context() context.Context { return l.holding().Context() }

// Release gives the permits back. If a request waits for them, it is granted them in the same
// step. The caller must call Release even if the lease was lost.
//
// Release returns nil the first time, and leasehold.ErrReleased after that and after Close.
// leasehold.ErrLost says that the lease had ended before, so the work under it may have run at
// the same time as the work of other holders. leasehold.ErrUnavailable says that Redis could
// not confirm. The permits are then given back in the background.
//
// Release takes no ctx, so that it works after a ctx was cancelled. It bounds itself, for any
// number of callers: its call is sent within 5 s, more than once if need be, and waits for an
// answer for the client's ReadTimeout (5 s by default; 8 s if the client has none). While Redis
// is known to be away, it returns leasehold.ErrUnavailable within 100 ms.
//
// It costs one round trip. With Config.LocalFor it costs none if the next turn belongs to this
// process, and with Config.KeepFor none if the permits stay in it. If the process queues again, it gives back and queues in one pipeline. If that
// pipeline fails, Release gives back once more by itself, and may take twice as long.
func (l *Lease) Release() error { return l.holding().Release("release") }

// Extend moves the expiry to ttl from now, and never shortens the lease. ttl is at least 100
// ms. Use Extend before work that must survive without Redis for longer than the configured
// TTL. It costs one round trip.
//
// If ctx ends, Extend returns at once. If Redis does not answer, the last try begins about a
// second after the call, and Extend returns within about 4 s plus the client's ReadTimeout (5
// s by default; 8 s if the client has none). With Config.Replicas it may also take the time to
// wait for replicas.
//
// Its errors are leasehold.ErrInvalid if ttl is too short, leasehold.ErrLost,
// leasehold.ErrReleased, leasehold.ErrUnavailable and ctx's own. leasehold.ErrUnavailable says
// that Redis, or as many replicas as Config.Replicas says, did not confirm. The lease then
// lasts as long as before, or longer. If ctx ends during the call, its error is joined with
// leasehold.ErrUnavailable. If ctx had ended before the call, its error is returned alone.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	call.NeedCtx(ctx)
	return l.holding().Extend(ctx, ttl)
}

// ID returns the name of the lease in listings. The lease cannot be released with it.
func (l *Lease) ID() string { return l.holding().ID() }

// Key returns the key as it was passed to Acquire.
func (l *Lease) Key() string { return l.holding().Key() }

// Deadline returns the time until which the lease is surely held if no renewal succeeds from
// now on. It is a time of the local monotonic clock, and lies before the end of the lease in
// Redis by at least 10 ms or 2 % of the lease's present term, whichever is more. This term is
// the TTL, or what Extend set. It is at most 2 s at first if another process handed the permits
// over. A renewal moves the Deadline. The monotonic clock may stand still while the machine is
// suspended.
func (l *Lease) Deadline() time.Time { return l.holding().Deadline() }
