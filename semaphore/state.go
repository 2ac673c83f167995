package semaphore

import (
	"context"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/permits"

	"github.com/leasehold-go/leasehold/internal/call"
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
