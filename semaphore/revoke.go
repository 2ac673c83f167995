package semaphore

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/permits"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Revoke takes a lease of key away from its holder, in any process. All its permits are
// granted to the next waiters in the same step. leaseID is the ID that [Semaphore.Inspect]
// lists and [Lease.ID] returns; that of a waiter takes its place in the queue. reason is shown
// to the holder and kept in the audit: 1 to 200 printable bytes.
//
// The holder's Context ends with a *leasehold.RevokedError, and its Release returns that error.
// It matches leasehold.ErrRevoked and leasehold.ErrLost. A message tells the holder, or else its
// next renewal, after a third of its TTL. Its work may go on until it looks at its Context. The
// Acquire or Do of a revoked waiter returns the RevokedError.
//
// The stream <prefix>:sem:{<name>:<key>}:audit, or <prefix>:sem:{<name>}:audit for a family
// with a Total, keeps the last 1000 revocations for 30 days. During that time a second Revoke
// of the same ID returns nil.
//
// Its errors are leasehold.ErrNoLease if there is no such lease or waiter, ErrInvalid for a bad
// key or reason, ErrUnavailable, after which the lease may have been revoked and Revoke may be
// called again, ErrClosed and ctx's own. It costs three round trips, or two for a waiter, and
// one more per 1000 entries of the key, and takes at most 10 s.
func (s *Semaphore) Revoke(ctx context.Context, key, leaseID, reason string) error {
	call.NeedCtx(ctx)
	return permits.Revoke(ctx, s.manager, s.rdb, s.cfg.family(), key, leaseID, reason, s.cfg.Total > 0)
}
