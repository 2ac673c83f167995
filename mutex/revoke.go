package mutex

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/permits"
)

// Revoke takes the lock of key away from its holder, whatever process has it: it goes to
// the next waiter in the same step. lockID is what [Mutex.Inspect] lists and [Lock.ID]
// says; that of a waiter takes its place in the queue away. reason is for the holder and
// for the audit: 1 to 200 printable bytes.
//
// The holder's Context ends with a *leasehold.RevokedError, which matches
// leasehold.ErrRevoked and leasehold.ErrLost, and its Unlock returns that. The holder is
// told by a message; where that is lost, its next renewal tells, after a third of its TTL.
// The work that it does may go on until it looks at its Context; a [Guard] refuses its
// writes once the successor has written. A revoked waiter's Lock returns the RevokedError;
// nothing ran.
//
// Each revocation is noted in Redis, in the stream <prefix>:mtx:{<name>:<key>}:audit,
// which keeps the last 1000 for 30 days. A second Revoke of the same ID returns nil for as
// long.
//
// It takes two round trips, and one more per 1000 waiters, and at most 10 s. Errors:
// leasehold.ErrNoLease where no such lock and no such waiter is there;
// leasehold.ErrInvalid for a bad key or reason, leasehold.ErrUnavailable (the lock may
// have been revoked, and a second Revoke is safe), leasehold.ErrClosed, ctx's own.
func (m *Mutex) Revoke(ctx context.Context, key, lockID, reason string) error {
	return permits.Revoke(ctx, m.m, m.rdb, m.family, key, lockID, reason, false)
}
