package semaphore

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// SetLimit sets the limit of key for the whole fleet, 1 to 100000, in place of what
// each process configured; 0 goes back to that. Every request that Redis sees from
// then on is judged by it, in every process. A higher limit is granted at once to those
// that wait; a lower one takes no permit away: nothing more is granted until the use is
// below it. A waiting AcquireN of more permits than the limit ends with
// leasehold.ErrInvalid: the next in line at once, others at their turn, or with the
// next sign of life.
//
// The limit is stored in Redis without an expiry until it is set to 0. Where Redis
// loses it (a restart without persistence, FLUSHALL, an eviction policy allkeys-*),
// the configured limits are in force again.
//
// It costs a round trip, and more in the background where thousands wait. SetLimit
// returns nil once the limit is stored. The settings of one handle take effect in the
// order of the calls, also where a call was repeated or came late. Where ctx ends, or
// Redis has not answered after 3 s of tries (leasehold.ErrUnavailable), the limit may
// have been stored, or be stored within 5 s; but not over a later setting of this
// handle. Other errors: leasehold.ErrInvalid, leasehold.ErrClosed.
func (s *Semaphore) SetLimit(ctx context.Context, key string, n int) error {
	const op = "set limit"
	if n < 0 || n > maxLimit {
		return s.m.Reject(op, key, keys.Invalid("limit is %d; want 1 to %d, or 0 for the configured one", n, maxLimit))
	}
	r, err := s.m.Resource(key)
	if err != nil {
		return s.m.Reject(op, key, err)
	}
	return s.m.Set(ctx, op, r.(lease.Adjustable), n)
}

// SetTotal is [Semaphore.SetLimit] for the total of the family, 1 to 1000000; 0 goes
// back to the Total that each process configured. It needs Config.Total
// (leasehold.ErrInvalid), and cannot take the total away.
func (s *Semaphore) SetTotal(ctx context.Context, n int) error {
	const op = "set total"
	switch {
	case s.family == nil:
		return s.m.Reject(op, "", keys.Invalid("Total is 0; want a family that is configured with one"))
	case n < 0 || n > maxTotal:
		return s.m.Reject(op, "", keys.Invalid("total is %d; want 1 to %d, or 0 for the configured one", n, maxTotal))
	}
	return s.m.Set(ctx, op, s.family.Whole(), n)
}
