package quorum

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/revoke"
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
		seen, err := ask(ctx, f, late, func(ctx context.Context, s *server) (listing.State, error) {
			return heard(s, func() (listing.State, error) {
				return listing.New(s.rdb, f.keys.Prefix).State(ctx, f.listed(key), listing.Bounds{})
			})
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
// of any majority knows of it, unless it has forgotten. After patience the others are not waited for.
func (f *Family) IsComplete(ctx context.Context, o *permits.Once, patience time.Duration) (bool, error) {
	seen, err := ask(ctx, f, min(late, patience), func(ctx context.Context, s *server) (int64, error) {
		// Int64 wants a reply: a hook may have swallowed the command, which says nothing of the run.
		return heard(s, func() (int64, error) { return s.rdb.Do(ctx, "EXISTS", o.Done).Int64() })
	})
	for _, n := range seen {
		if n > 0 {
			return true, nil
		}
	}
	return false, err
}

// heard reads from a server without a script, and notes whether it answers.
func heard[T any](s *server, read func() (T, error)) (T, error) {
	began := time.Now()
	v, err := read()
	err = call.Harmless(err)
	s.client.Heard(s.f.born, began, err)
	return v, err
}

// Revoke takes the lock of key, or a waiter's place, away on all servers. It is done once a majority
// has done it: the owner's next renewal hears it from one of them.
func (f *Family) Revoke(ctx context.Context, m *lease.Manager, key, id, reason string) error {
	return revoke.Revoke(ctx, m, key, id, reason, func(ctx context.Context, r protocol.Resource) (protocol.Resource, string, error) {
		named := f.listed(key)
		members, err := ask(ctx, f, late, func(ctx context.Context, s *server) (string, error) {
			// Search the queue first: a waiter that gets the vote meanwhile moves from there.
			return listing.New(s.rdb, f.keys.Prefix).Find(ctx, named, id, "queue", "holders")
		})
		return &target{r.(*Resource), members}, "", err
	})
}

// A target is a Resource with the names that the attempt to revoke has on the servers. They differ
// while it gives back what an earlier name had.
type target struct {
	*Resource
	members map[int]string // by server
}

// Revoke prepares the joint call that takes the votes and places away.
func (t *target) Revoke(_, id, reason string) *call.Call {
	f := t.f
	return call.NewJoint(func(ctx context.Context, _ time.Time, end func([]int64, []string, error)) {
		member := ""
		for _, m := range t.members {
			member = cmp.Or(m, member)
		}
		beside := []any{keys.Beside(t.FirstKey(), "revoked"), keys.Beside(t.FirstKey(), "audit")}
		f.active.Go(func() {
			states, err := ask(ctx, f, late, func(ctx context.Context, s *server) (int64, error) {
				v, err := s.client.Do(ctx, t.callWith(revokeScript, beside, cmp.Or(t.members[s.i], member), 0, id, reason))
				if err == nil && (len(v) != 2 || v[0] < 0 || v[0] > 2) {
					err = call.Malformed("revoke", v)
				}
				if err != nil {
					return 0, err
				}
				return v[0], nil
			})
			if err != nil {
				end(nil, nil, err)
				return
			}
			revoked := [3]bool{}
			for _, state := range states {
				revoked[state] = true
			}
			state := 1 + slices.Index(revoked[1:], true) // 0 if no server found it
			end([]int64{int64(state), 0, 0}, nil, nil)
		})
	})
}

// Revoke is not called: a target, which knows the names on the servers, prepares the call.
func (r *Resource) Revoke(string, string, string) *call.Call { return nil }

// ask runs read for each server. It returns once all have answered, or after patience without those
// that have not. It fails if fewer than a majority have.
func ask[T any](ctx context.Context, f *Family, patience time.Duration, read func(ctx context.Context, s *server) (T, error)) (got map[int]T, err error) {
	within, cancel := context.WithCancel(ctx) // which ends those that nobody waits for any more
	defer cancel()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	type answer struct {
		i   int
		v   T
		err error
	}
	answers := make(chan answer, len(f.servers))
	for _, s := range f.servers {
		if err := s.away(f.born); err != nil {
			answers <- answer{err: err}
			continue
		}
		f.active.Go(func() {
			a := answer{i: s.i, err: errNotYet} // stays if a hook panics or ends this goroutine
			defer func() {
				_ = recover()
				answers <- a
			}()
			v, err := read(within, s)
			a.v, a.err = v, err
		})
	}
	got = map[int]T{}
	var why []error
	tooLong := false
	for open := len(f.servers); open > 0 && ctx.Err() == nil && !(tooLong && len(got) >= f.need); {
		select {
		case a := <-answers:
			if open--; a.err != nil {
				why = append(why, a.err)
			} else {
				got[a.i] = a.v
			}
		case <-timer.C:
			tooLong = true
		case <-ctx.Done():
		}
	}
	if len(got) < f.need {
		return nil, &noMajority{have: len(got), need: f.need, cause: cmp.Or(f.worst(why), errNotYet)}
	}
	return got, nil
}
