package mutex

import (
	"context"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/permits"
)

// State describes the holder and the waiters of a key in the whole fleet.
type State struct {
	Held      bool
	Holder    *leasehold.Holder // nil if the lock is free
	LastToken uint64            // the newest token; 0 if none is known

	Waiting int
	Waiters []leasehold.Waiter // in the order of the queue
}

// Inspect lists the holder and the waiters of key. It reads the state in Redis and changes
// nothing. A holder or a waiter that is present for the whole duration of the call is listed
// once. Expired entries are not listed.
//
// Its errors are leasehold.ErrInvalid for a bad key, leasehold.ErrUnavailable,
// leasehold.ErrClosed and ctx's own. While Redis is known to be away, Inspect returns
// leasehold.ErrUnavailable within 100 ms.
//
// Inspect costs a few round trips, and one more per 1000 waiters. It takes at most 10 s.
func (m *Mutex) Inspect(ctx context.Context, key string) (State, error) {
	call.NeedCtx(ctx)
	if m.quorum != nil {
		return m.inspectQuorum(ctx, key)
	}
	seen, err := permits.Inspect(ctx, m.manager, m.rdb, m.family, key, false)
	if err != nil {
		return State{}, err
	}
	state := State{LastToken: seen.Token, Waiting: len(seen.Waiters)}
	if len(seen.Holders) > 0 {
		state.Held, state.Holder = true, &seen.Holders[0].Holder
	}
	for _, w := range seen.Waiters {
		state.Waiters = append(state.Waiters, w.Waiter)
	}
	return state, nil
}

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
