package mutex

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/permits"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Revoke takes the lock of key away from its holder, in any process. The lock is granted to
// the next waiter in the same step. lockID is the ID that [Mutex.Inspect] lists and [Lock.ID]
// returns; that of a waiter takes its place in the queue. reason is shown to the holder and
// kept in the audit: 1 to 200 printable bytes.
//
// The holder's Context ends with a *leasehold.RevokedError, and its Unlock returns that error.
// It matches leasehold.ErrRevoked and leasehold.ErrLost. A message tells the holder, or else its
// next renewal, after a third of its TTL. Its work may go on until it looks at its Context. A
// [Guard] refuses its writes once the successor has written. The Lock or Do of a revoked waiter
// returns the RevokedError.
//
// The stream <prefix>:mtx:{<name>:<key>}:audit keeps the last 1000 revocations for 30 days.
// During that time a second Revoke of the same ID returns nil.
//
// Its errors are leasehold.ErrNoLease if there is no such lock or waiter, ErrInvalid for a bad
// key or reason, ErrUnavailable, after which the lock may have been revoked and Revoke may be
// called again, ErrClosed and ctx's own. It costs three round trips, or two for a waiter, and
// one more per 1000 waiters, and takes at most 10 s.
func (m *Mutex) Revoke(ctx context.Context, key, lockID, reason string) error {
	call.NeedCtx(ctx)
	if m.quorum != nil {
		return m.quorum.Revoke(ctx, m.manager, key, lockID, reason)
	}
	return permits.Revoke(ctx, m.manager, m.rdb, m.family, key, lockID, reason, false)
}
