package mutex

import (
	"context"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/permits"

	"github.com/leasehold-go/leasehold/internal/call"
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
