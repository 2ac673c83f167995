package quorum

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

const inspectWithin = 10 * time.Second

// A State is what a majority of servers knows of a lock.
type State struct {
	Holder  *leasehold.Holder // nil: nobody has the votes of a majority
	Token   uint64
	Waiters []leasehold.Waiter
}

func (f *Family) listed(key string) listing.Resource {
	return listing.Of(f.keys.Prefix, f.keys.Kind, f.keys.Name, keys.Shown(key, f.keys.Hash), false)
}

// Inspect reads the state of key on all servers that answer, and tells what a majority says.
func (f *Family) Inspect(ctx context.Context, m *lease.Manager, key string) (State, error) {
	var state State
	err := m.Run(ctx, "inspect", key, inspectWithin, func(ctx context.Context, r protocol.Resource) error {
		if err := f.Reachable(ctx, r.FirstKey()); err != nil {
			return err
		}
		seen, err := ask(ctx, f, func(ctx context.Context, s *server) (listing.State, error) {
			return listing.New(s.rdb, f.keys.Prefix).State(ctx, f.listed(key), listing.Bounds{})
		})
		if err == nil {
			state = f.majority(seen)
		}
		return err
	})
	if err != nil {
		return State{}, err
	}
	return state, nil
}

// majority tells what a majority of servers says. The lock is held by the request that has the votes
// of a majority, until so many have ended that no majority is left. A request waits if a majority
// has it in its queue, or has given it its vote.
func (f *Family) majority(seen map[int]listing.State) (state State) {
	type place struct {
		holders []leasehold.Holder
		waiters []leasehold.Waiter
	}
	places := map[string]*place{}
	at := func(id string) *place {
		if places[id] == nil {
			places[id] = &place{}
		}
		return places[id]
	}
	var tokens []uint64
	for _, s := range seen {
		for _, h := range s.Holders {
			p := at(h.ID)
			p.holders = append(p.holders, h.Holder)
		}
		for _, w := range s.Waiters {
			p := at(w.ID)
			p.waiters = append(p.waiters, w.Waiter)
		}
		tokens = append(tokens, s.Token)
	}
	slices.Sort(tokens)
	state.Token = tokens[len(tokens)-f.need]
	for id, p := range places {
		switch {
		case len(p.holders) >= f.need:
			slices.SortFunc(p.holders, func(a, b leasehold.Holder) int { return cmp.Compare(a.ExpiresIn, b.ExpiresIn) })
			h := p.holders[len(p.holders)-f.need]
			for _, other := range p.holders {
				if other.Since.After(h.Since) {
					h.Since = other.Since // the last vote made the majority
				}
			}
			state.Holder = &h
		case len(p.holders)+len(p.waiters) >= f.need:
			w := leasehold.Waiter{ID: id, Permits: 1}
			for _, other := range p.waiters {
				w.Label, w.WaitingFor = other.Label, max(w.WaitingFor, other.WaitingFor)
			}
			for _, other := range p.holders {
				w.Label = other.Label
			}
			state.Waiters = append(state.Waiters, w)
		}
	}
	slices.SortFunc(state.Waiters, func(a, b leasehold.Waiter) int {
		return cmp.Or(cmp.Compare(b.WaitingFor, a.WaitingFor), cmp.Compare(a.ID, b.ID))
	})
	for i := range state.Waiters {
		state.Waiters[i].Position = i + 1
	}
	return state
}

// IsComplete asks the servers whether a run is complete. A completion is stored by a majority, so one
// of any majority knows of it, unless it has forgotten.
func (f *Family) IsComplete(ctx context.Context, o *Once) (bool, error) {
	seen, err := ask(ctx, f, func(ctx context.Context, s *server) (int64, error) {
		// Int64 wants a reply: a hook may have swallowed the command, which says nothing of the run.
		return s.rdb.Do(ctx, "EXISTS", o.done).Int64()
	})
	for _, n := range seen {
		if n > 0 {
			return true, nil
		}
	}
	return false, err
}
