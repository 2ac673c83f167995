package semaphore

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/permits"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Revoke takes a lease of key away from its holder, in any process. All its permits are free
// at once and are granted to the next waiters in the same step. leaseID is the ID that
// [Semaphore.Inspect] lists and [Lease.ID] returns. If leaseID names a waiter, the waiter
// loses its place in the queue. reason is shown to the holder and kept in the audit: 1 to 200
// printable bytes.
//
// The holder's Context ends with a *leasehold.RevokedError, and its Release returns that
// error. It matches leasehold.ErrRevoked and leasehold.ErrLost. A message tells the holder. If
// the message is lost, the holder learns of it from its next renewal, which comes after a
// third of its TTL. The holder's work may go on until it looks at its Context. Only the
// fencing token of a mutex stops its writes, and only once its successor has written. If a
// waiter is revoked, its Acquire returns the RevokedError, and its Do returns it without
// running fn.
//
// Each revocation is recorded in Redis, in the stream <prefix>:sem:{<name>:<key>}:audit, or
// <prefix>:sem:{<name>}:audit for a family with a Total. The stream keeps the last 1000
// revocations for 30 days. During that time a second Revoke of the same ID returns nil.
//
// Its errors are leasehold.ErrNoLease if there is no such lease or waiter,
// leasehold.ErrInvalid for a bad key or reason, leasehold.ErrUnavailable, leasehold.ErrClosed
// and ctx's own. After leasehold.ErrUnavailable the lease may have been revoked; it is safe to
// call Revoke again.
//
// Revoke costs three round trips, or two for a waiter, and one more per 1000 entries of the
// key. It takes at most 10 s.
func (s *Semaphore) Revoke(ctx context.Context, key, leaseID, reason string) error {
	call.NeedCtx(ctx)
	return permits.Revoke(ctx, s.manager, s.rdb, s.cfg.family(), key, leaseID, reason, s.cfg.Total > 0)
}
