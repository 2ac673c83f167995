package singleflight

import (
	"context"
	"fmt"
	"strconv"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/loads"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Revoke ends a load of key, in any process and of any schema. A process that waits for the
// load then loads at once. loadID is the ID that [Group.Inspect] shows. reason is shown to the
// process that loads and kept in the audit: 1 to 200 printable bytes.
//
// The loader's ctx ends with a *leasehold.RevokedError, which matches leasehold.ErrRevoked and
// leasehold.ErrLost. If the loader then returns a value, only its own caller gets it, and it
// is not stored. If the loader returns an error, that caller asks again. The load's permit of
// MaxLoads is given back. A message tells the process that loads. If the message is lost, that
// process learns of it from its next renewal, which comes after a third of LeaseTTL.
//
// Each revocation is recorded in Redis, in the stream <prefix>:flt:{<name>:<key>}:audit. The
// stream keeps the last 1000 revocations for 30 days. During that time a second Revoke of the
// same ID returns nil.
//
// Its errors are leasehold.ErrNoLease if no such load runs, leasehold.ErrInvalid for a bad key
// or reason, leasehold.ErrUnavailable, leasehold.ErrClosed and ctx's own. After
// leasehold.ErrUnavailable the load may have been revoked; it is safe to call Revoke again.
//
// Revoke costs three round trips, and more if the load was invalidated or is of another schema.
// It takes at most 10 s.
func (g *Group[T]) Revoke(ctx context.Context, key, loadID, reason string) error {
	call.NeedCtx(ctx)
	return g.manager.Revoke(ctx, key, loadID, reason, func(ctx context.Context, own lease.Resource) (lease.Resource, string, error) {
		return g.findLoad(ctx, key, loadID, own)
	})
}

// findLoad returns the member of a load, or of a waiter, and the schema that it belongs to.
func (g *Group[T]) findLoad(ctx context.Context, key, id string, own lease.Resource) (lease.Resource, string, error) {
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
