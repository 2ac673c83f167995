package mutex

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/permits"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Revoke takes the lock of key away from its holder, in any process. The lock is granted to
// the next waiter in the same step. lockID is the ID that [Mutex.Inspect] lists and [Lock.ID]
// returns. If lockID names a waiter, the waiter loses its place in the queue. reason is shown
// to the holder and kept in the audit: 1 to 200 printable bytes.
//
// The holder's Context ends with a *leasehold.RevokedError, and its Unlock returns that error.
// It matches leasehold.ErrRevoked and leasehold.ErrLost. A message tells the holder. If the
// message is lost, the holder learns of it from its next renewal, which comes after a third of
// its TTL. The holder's work may go on until it looks at its Context. A [Guard] refuses its
// writes once the successor has written. If a waiter is revoked, its Lock returns the
// RevokedError, and its Do returns it without running fn.
//
// Each revocation is recorded in Redis, in the stream <prefix>:mtx:{<name>:<key>}:audit. The
// stream keeps the last 1000 revocations for 30 days. During that time a second Revoke of the
// same ID returns nil.
//
// Its errors are leasehold.ErrNoLease if there is no such lock or waiter, leasehold.ErrInvalid
// for a bad key or reason, leasehold.ErrUnavailable, leasehold.ErrClosed and ctx's own. After
// leasehold.ErrUnavailable the lock may have been revoked; it is safe to call Revoke again.
//
// Revoke costs three round trips, or two for a waiter, and one more per 1000 waiters. It takes
// at most 10 s.
func (m *Mutex) Revoke(ctx context.Context, key, lockID, reason string) error {
	call.NeedCtx(ctx)
	return permits.Revoke(ctx, m.manager, m.rdb, m.family, key, lockID, reason, false)
}
