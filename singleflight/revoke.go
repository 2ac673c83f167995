package singleflight

import (
	"context"
	"fmt"
	"strconv"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// Revoke ends the load of key whose ID [Group.Inspect] shows, whatever process runs it,
// and of whatever schema: a process that waits for it loads at once. reason is for the
// process that loads and for the audit: 1 to 200 printable bytes.
//
// The loader's ctx ends with a *leasehold.RevokedError, which matches
// leasehold.ErrRevoked and leasehold.ErrLost. A value that the loader returns after that
// goes to its own caller only, and is not stored; where it returns an error, that caller
// asks anew. The load's permit of MaxLoads is given back. The process is told by a
// message; where that is lost, its next renewal tells, after a third of LeaseTTL.
//
// Each revocation is noted in Redis, in the stream <prefix>:flt:{<name>:<key>}:audit,
// which keeps the last 1000 for 30 days. A second Revoke of the same ID returns nil for as
// long.
//
// It takes three round trips, and at most 10 s. Errors: leasehold.ErrNoLease where no such
// load runs; leasehold.ErrInvalid for a bad key or reason, leasehold.ErrUnavailable (the
// load may have been revoked, and a second Revoke is safe), leasehold.ErrClosed, ctx's own.
func (g *Group[T]) Revoke(ctx context.Context, key, loadID, reason string) error {
	return g.manager.Revoke(ctx, key, loadID, reason, func(ctx context.Context, own lease.Resource) (lease.Revoker, string, error) {
		return g.findLoad(ctx, key, loadID, own.(lease.Revoker))
	})
}

// findLoad finds the member of a load, or of a waiter, and the schema that it belongs to.
func (g *Group[T]) findLoad(ctx context.Context, key, id string, own lease.Revoker) (lease.Revoker, string, error) {
	family := g.family
	l := listing.New(g.rdb, family.Prefix)
	find := func(r listing.Resource) (string, error) {
		// A waiter that is granted goes from the queue to the holders, and an invalidation
		// takes it from there.
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
		return r.(lease.Revoker), member, nil
	}
	return own, "", nil
}
