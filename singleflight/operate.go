package singleflight

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/revoke"
)

// Inspect returns the state of key in the whole fleet. It changes nothing.
//
// If ctx ends, Inspect returns at once. Otherwise it returns within 3 s plus the client's
// WriteTimeout and ReadTimeout. The first call of a Group asks for the server's version before
// that, for up to 8 s.
//
// Its errors are leasehold.ErrInvalid for a bad key, leasehold.ErrUnavailable,
// leasehold.ErrClosed and ctx's own. It costs one round trip.
func (g *Group[T]) Inspect(ctx context.Context, key string) (State, error) {
	call.NeedCtx(ctx)
	seen := make(chan loads.State, 1) // not a variable: the caller may have left
	err := g.manager.Run(ctx, "inspect", key, inspectWithin, func(ctx context.Context, r protocol.Resource) error {
		if err := g.manager.Client().Reachable(ctx, r.FirstKey()); err != nil {
			return err
		}
		one := r.(*loads.Resource).Inspect()
		v, err := g.manager.Client().Do(ctx, one)
		if err != nil {
			return err
		}
		s, err := loads.ReadInspect(v, one.Text)
		seen <- s
		return err
	})
	if err != nil {
		return State{}, err
	}
	return g.state(<-seen), nil
}

// inspectWithin is longer than the client's own bounds.
const inspectWithin = 30 * time.Second

func (g *Group[T]) state(s loads.State) State {
	since := func(us int64) time.Duration { return max(0, time.Duration(s.Now-us)*time.Microsecond) }
	state := State{Waiting: s.Waiting, Invalidated: s.Invalidated, Bytes: s.Bytes, KeptFor: s.Kept, Near: s.Near}
	if s.LeaseEnds > 0 {
		state.Loading, state.LoadID, state.LeaseEndsIn, state.LoadingFor = true, s.Loader, s.LeaseEnds, since(s.Since)
		state.LoadLabel = s.LoaderLabel
	}
	if e, err := envelope.Header(s.Head); err == nil && s.Bytes > 0 && e.Schema == g.cfg.Schema {
		state.Cached, state.NotFound = true, e.Kind == envelope.NotFound
		state.Age = since(e.Published)
		state.FreshFor = max(0, e.Fresh-state.Age)
	}
	if e, err := envelope.Decode(s.Failure); err == nil && isFailure(e.Kind) {
		state.Failure, _, _ = strings.Cut(e.Payload, separator)
		state.FailedFor = s.Failed
	}
	return state
}

// Revoke ends a load of key, in any process and of any schema, or the wait for one. A process
// that waits then loads at once. loadID is the ID that [Group.Inspect] shows. reason is shown to
// the process that loads and kept in the audit: 1 to 200 printable bytes.
//
// The loader's ctx ends with a *leasehold.RevokedError, which matches leasehold.ErrRevoked and
// leasehold.ErrLost, at once or, if the message is lost, within a third of LeaseTTL. If the loader
// then returns a value, only its own caller gets it, and it is not stored; after an error that
// caller asks again. So does a caller if its load or wait was revoked before its loader ran. The
// load's permit of MaxLoads is given back.
//
// Each revocation is recorded in the stream <prefix>:flt:{<name>:<key>}:audit, which keeps the
// last 1000 for 30 days. During that time a second Revoke of the same ID returns nil.
//
// Its errors are leasehold.ErrNoLease if no such load runs, leasehold.ErrInvalid,
// leasehold.ErrClosed, ctx's own, and leasehold.ErrUnavailable, after which it is safe to call
// Revoke again. Revoke costs three round trips or more, and takes at most 10 s.
func (g *Group[T]) Revoke(ctx context.Context, key, loadID, reason string) error {
	call.NeedCtx(ctx)
	return revoke.Revoke(ctx, g.manager, key, loadID, reason, func(ctx context.Context, own protocol.Resource) (protocol.Resource, string, error) {
		return g.findLoad(ctx, key, loadID, own)
	})
}

// findLoad returns the member of a load, or of a waiter, and the schema that it belongs to.
func (g *Group[T]) findLoad(ctx context.Context, key, id string, own protocol.Resource) (protocol.Resource, string, error) {
	family := g.family
	l := listing.New(g.rdb, family.Prefix)
	find := func(r listing.Resource) (string, error) {
		// The order matters: a waiter that is granted moves from the queue to the holders, and
		// an invalidation moves it on to aside.
		return l.Find(ctx, r, id, "queue", "holders", "aside")
	}
	named := listing.Of(family.Prefix, family.Kind, family.Name, keys.Shown(key, family.Hash), false)
	if g.cfg.Schema != 0 {
		named.Schema = fmt.Sprintf("%08x", g.cfg.Schema)
	}
	member, err := find(named)
	if err != nil || member != "" {
		return own, member, err
	}
	others, err := l.Schemas(ctx, named)
	if err != nil {
		return nil, "", err
	}
	for _, other := range others {
		member, err := find(other)
		if err != nil {
			return nil, "", err
		}
		if member == "" {
			continue
		}
		schema, err := strconv.ParseUint("0"+other.Schema, 16, 32)
		if err != nil {
			return nil, "", err
		}
		r, err := loads.Family{Family: family, Schema: uint32(schema)}.Resource(key)
		if err != nil {
			return nil, "", err
		}
		return r, member, nil
	}
	return own, "", nil
}
