package semaphore

import (
	"context"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/permits"
)

// State describes the holders and the waiters of a key in the whole fleet.
type State struct {
	Limit   int // the limit stored by SetLimit, else this handle's
	InUse   int // permits in use
	Waiting int // waiting requests

	// Total and TotalInUse are set for a family with a Total, and are 0 otherwise. Total is
	// the one stored by SetTotal, else this handle's. TotalInUse is the number of permits in
	// use, of all keys of the family.
	Total, TotalInUse int

	Holders []leasehold.Holder // oldest first
	Waiters []leasehold.Waiter // in the order of the queue
}

// Inspect lists the holders and the waiters of key. It reads the state in Redis and changes
// nothing. A lease or a waiter that is present for the whole duration of the call is listed
// once, however often it is renewed meanwhile. Expired entries are not listed.
//
// Its errors are leasehold.ErrInvalid for a bad key, leasehold.ErrUnavailable,
// leasehold.ErrClosed and ctx's own. While Redis is known to be away, Inspect returns
// leasehold.ErrUnavailable within 100 ms.
//
// Inspect costs a few round trips, and one more per 1000 entries. In a family with a Total it
// reads all keys of the family. It takes at most 10 s.
func (s *Semaphore) Inspect(ctx context.Context, key string) (State, error) {
	call.NeedCtx(ctx)
	limit, err := s.cfg.limit(key)
	if err != nil {
		return State{}, s.manager.Reject("inspect", key, err)
	}
	seen, err := permits.Inspect(ctx, s.manager, s.rdb, s.cfg.family(), key, s.cfg.Total > 0)
	if err != nil {
		return State{}, err
	}
	if seen.Stored {
		limit = seen.Limit
	}
	state := State{Limit: limit, InUse: seen.InUse, Waiting: len(seen.Waiters)}
	if s.cfg.Total > 0 {
		state.Total, state.TotalInUse = s.cfg.Total, seen.TotalInUse
		if stored := seen.Limits[""]; stored > 0 {
			state.Total = stored
		}
	}
	for _, h := range seen.Holders {
		state.Holders = append(state.Holders, h.Holder)
	}
	for _, w := range seen.Waiters {
		state.Waiters = append(state.Waiters, w.Waiter)
	}
	return state, nil
}

// SetLimit sets the limit of key for the whole fleet, 1 to 100000. It replaces the limit that
// each process configured; 0 restores the configured limits. Redis then judges every request of
// every process by the new limit. It is stored without an expiry until it is set to 0, or lost
// with Redis's data (a restart without persistence, FLUSHALL, an eviction policy allkeys-*).
//
// A higher limit is granted to waiting requests at once. A lower one takes no permit away:
// nothing more is granted until the use is below it. An AcquireN that waits for more permits
// than that ends with leasehold.ErrInvalid, at its turn. In a family with a Total it ends at the
// latest when its process next calls Redis for its waiters (each 1.5 s).
//
// SetLimit returns nil once the limit is stored. Of two settings the one that was called later
// counts, of any handle, even if a call was repeated or came late. (Handles know the server's
// clock to within a round trip.) If ctx ends during the call, SetLimit returns at once with
// ctx's error joined with leasehold.ErrUnavailable. If Redis has not answered after 3 s of
// tries, or refuses, it returns leasehold.ErrUnavailable; the last try may take 3 s plus the
// client's ReadTimeout. In these cases the limit may have been stored, or may be within 5 s, but
// it replaces no later setting. Other errors are leasehold.ErrInvalid and leasehold.ErrClosed.
//
// It costs a round trip, and a wait of at most another one for the server's clock.
func (s *Semaphore) SetLimit(ctx context.Context, key string, n int) error {
	call.NeedCtx(ctx)
	const op = "set limit"
	if n < 0 || n > maxLimit {
		return s.manager.Reject(op, key, keys.Invalid("limit is %d; want 1 to %d, or 0 for the configured one", n, maxLimit))
	}
	r, err := s.manager.Resource(key)
	if err != nil {
		return s.manager.Reject(op, key, err)
	}
	return s.setter.Set(ctx, op, r, n)
}

// SetTotal is like [Semaphore.SetLimit], but sets the total of the family, 1 to 1000000. 0
// restores the Total that each process configured. SetTotal needs a Config.Total, otherwise it
// returns leasehold.ErrInvalid. It cannot remove the total.
func (s *Semaphore) SetTotal(ctx context.Context, n int) error {
	call.NeedCtx(ctx)
	const op = "set total"
	switch {
	case s.family == nil:
		return s.manager.Reject(op, "", keys.Invalid("Total is 0; want a family that is configured with one"))
	case n < 0 || n > maxTotal:
		return s.manager.Reject(op, "", keys.Invalid("total is %d; want 1 to %d, or 0 for the configured one", n, maxTotal))
	}
	return s.setter.Set(ctx, op, s.family.Whole(), n)
}

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
