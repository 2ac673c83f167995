package mutex

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Lock is a lock that is held. It is renewed in the background until it is unlocked or lost.
// Its methods are safe for concurrent use. It must not be copied.
type Lock struct {
	held lease.Lease
	turn *localturns.Turn // set with Config.LocalFor; its lease may be held
}

// holding returns what the caller holds: a turn on a lease, or a lease of its own.
func (l *Lock) holding() localturns.Holding {
	if l.turn != nil {
		return l.turn
	}
	return &l.held
}

// Token returns the fencing token. It is greater than that of every earlier holder of this
// key. It is never 0, and is below 2^53 until the year 2255.
func (l *Lock) Token() uint64 { return l.holding().Token() }

// Context returns a child of the ctx of Lock that also ends when the lock is lost or given
// back. Run the work under this Context. If the lock cannot be renewed, the Context ends some
// time before another caller can be granted the lock. At MaxHold the lock is free as soon as
// the Context has ended. If the lock is revoked or its key is deleted, the lock is free at
// once, and the Context ends when the holder learns of it.
//
// [context.Cause] gives the reason: leasehold.ErrLost, leasehold.ErrRevoked,
// leasehold.ErrMaxHold, leasehold.ErrReleased, leasehold.ErrClosed, or the cause of the ctx of
// Lock.
func (l *Lock) Context() context.Context { return l.holding().Context() }

// Unlock gives the lock back. If a request waits for it, it is granted the lock in the same
// step. The caller must call Unlock even if the lock was lost.
//
// Unlock returns nil the first time, and leasehold.ErrReleased after that and after Close.
// leasehold.ErrLost says that the lock had ended before, so the work under it may have run at
// the same time as the work of another holder. leasehold.ErrUnavailable says that Redis could
// not confirm. The lock is then given back in the background.
//
// Unlock takes no ctx, so that it works after a ctx was cancelled. It bounds itself, for any
// number of callers: its call is sent within 5 s, more than once if need be, and waits for an
// answer for the client's ReadTimeout (5 s by default; 8 s if the client has none). While Redis
// is known to be away, it returns leasehold.ErrUnavailable within 100 ms.
//
// It costs one round trip. With Config.LocalFor it costs none if the next turn belongs to this
// process, and with Config.KeepFor none if the lock stays in it. If the process queues again, it gives back and queues in one pipeline. If that
// pipeline fails, Unlock gives back once more by itself, and may take twice as long.
func (l *Lock) Unlock() error { return l.holding().Release("unlock") }

// Extend moves the expiry to ttl from now, and never shortens the lock. ttl is at least 100
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
// that Redis, or as many replicas as Config.Replicas says, did not confirm. The lock then
// lasts as long as before, or longer. If ctx ends during the call, its error is joined with
// leasehold.ErrUnavailable. If ctx had ended before the call, its error is returned alone.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	call.NeedCtx(ctx)
	return l.holding().Extend(ctx, ttl)
}

// ID returns the name of the lock in listings. The lock cannot be released with it.
func (l *Lock) ID() string { return l.holding().ID() }

// Key returns the key as it was passed to Lock.
func (l *Lock) Key() string { return l.holding().Key() }

// Deadline returns the time until which the lock is surely held if no renewal succeeds from
// now on. It is a time of the local monotonic clock, and lies before the end of the lock in
// Redis by at least 10 ms or 2 % of the lock's present term, whichever is more. This term is
// the TTL, or what Extend set. It is at most 2 s at first if another process handed the lock
// over. A renewal moves the Deadline. The monotonic clock may stand still while the machine is
// suspended.
func (l *Lock) Deadline() time.Time { return l.holding().Deadline() }
