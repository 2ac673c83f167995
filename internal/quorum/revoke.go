package quorum

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/revoke"
)

// Revoke takes the lock of key, or a waiter's place, away on all servers. It is done once a majority
// has done it: the owner's next renewal hears it from one of them.
func (f *Family) Revoke(ctx context.Context, m *lease.Manager, key, id, reason string) error {
	return revoke.Revoke(ctx, m, key, id, reason, func(ctx context.Context, r protocol.Resource) (protocol.Resource, string, error) {
		named := f.listed(key)
		members, err := ask(ctx, f, func(ctx context.Context, s *server) (string, error) {
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
			states, err := ask(ctx, f, func(ctx context.Context, s *server) (int64, error) {
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

// Revoke is not called: see target.
func (r *Resource) Revoke(string, string, string) *call.Call {
	return call.NewJoint(func(_ context.Context, _ time.Time, end func([]int64, []string, error)) {
		end(nil, nil, errors.New("no member was looked up"))
	})
}

// ask runs read for each server. It returns once all have answered, or after a while without those
// that have not. It fails if fewer than a majority have.
func ask[T any](ctx context.Context, f *Family, read func(ctx context.Context, s *server) (T, error)) (got map[int]T, err error) {
	within, cancel := context.WithCancel(ctx) // which ends those that nobody waits for any more
	defer cancel()
	patience := time.NewTimer(late)
	defer patience.Stop()
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
			a.v, a.err = read(within, s)
		})
	}
	got = map[int]T{}
	why := error(nil)
	tooLong := false
	for open := len(f.servers); open > 0 && ctx.Err() == nil && !(tooLong && len(got) >= f.need); {
		select {
		case a := <-answers:
			if open--; a.err != nil {
				why = worse(why, a.err)
			} else {
				got[a.i] = a.v
			}
		case <-patience.C:
			tooLong = true
		case <-ctx.Done():
		}
	}
	if len(got) < f.need {
		return nil, &noMajority{have: len(got), need: f.need, cause: errors.Join(ctx.Err(), cmp.Or(why, errNotYet))}
	}
	return got, nil
}
