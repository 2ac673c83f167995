package semaphore

import (
	"context"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/permits"
)

// State is the holders and the waiters of a key, in the whole fleet.
type State struct {
	Limit   int // the stored one, else this handle's
	InUse   int // permits
	Waiting int // requests

	// Of a family with a Total: the stored one, else this handle's, and the permits
	// that all keys of the family have. Without one, 0.
	Total, TotalInUse int

	Holders []leasehold.Holder // oldest first
	Waiters []leasehold.Waiter // in their order
}

// Inspect lists the holders and the waiters of key. It reads what stands in
// Redis and changes nothing: a few round trips, and one more per 1000 entries. A lease
// or a waiter that is there all the while is listed once, however often it is renewed
// meanwhile; one that has expired is not listed. Of a family with a Total, all keys of the
// family are read.
//
// It takes at most 10 s. Errors: leasehold.ErrInvalid for a bad key,
// leasehold.ErrUnavailable, leasehold.ErrClosed, ctx's own.
func (s *Semaphore) Inspect(ctx context.Context, key string) (State, error) {
	limit, err := s.cfg.limit(key)
	if err != nil {
		return State{}, s.m.Reject("inspect", key, err)
	}
	seen, err := permits.Inspect(ctx, s.m, s.rdb, s.cfg.family(), key, s.cfg.Total > 0)
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
