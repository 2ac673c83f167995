package semaphore

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/permits"
)

// Revoke takes a lease of key away from its holder, whatever process has it: all its
// permits are free at once, and go to the next waiters in the same step. leaseID is what
// [Semaphore.Inspect] lists and [Lease.ID] says; that of a waiter takes its place in the
// queue away. reason is for the holder and for the audit: 1 to 200 printable bytes.
//
// The holder's Context ends with a *leasehold.RevokedError, which matches
// leasehold.ErrRevoked and leasehold.ErrLost, and its Release returns that. The holder is
// told by a message; where that is lost, its next renewal tells, after a third of its TTL.
// The work that it does may go on until it looks at its Context: only the fencing token of
// a mutex stops its writes, and that once its successor has written. A revoked waiter's
// Acquire returns the RevokedError; nothing ran.
//
// Each revocation is noted in Redis, in the stream <prefix>:sem:{<name>:<key>}:audit
// (<prefix>:sem:{<name>}:audit in a family with a Total), which keeps the last 1000 for 30
// days. A second Revoke of the same ID returns nil for as long.
//
// It takes two round trips, and one more per 1000 entries of the key, and at most 10 s.
// Errors: leasehold.ErrNoLease where no such lease and no such waiter is there;
// leasehold.ErrInvalid for a bad key or reason, leasehold.ErrUnavailable (the lease may
// have been revoked, and a second Revoke is safe), leasehold.ErrClosed, ctx's own.
func (s *Semaphore) Revoke(ctx context.Context, key, leaseID, reason string) error {
	return permits.Revoke(ctx, s.m, s.rdb, s.cfg.family(), key, leaseID, reason, s.cfg.Total > 0)
}
