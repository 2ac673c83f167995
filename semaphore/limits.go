package semaphore

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/keys"

	"github.com/leasehold-go/leasehold/internal/call"
)

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
