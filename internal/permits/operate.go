package permits

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/revoke"
	"github.com/leasehold-go/leasehold/luascripts"
)

// inspectWithin bounds the duration of one Inspect.
const inspectWithin = 10 * time.Second

// Inspect reads the state of key for the handle m of a family.
func Inspect(ctx context.Context, m *lease.Manager, rdb redis.UniversalClient, family keys.Family, key string, total bool) (listing.State, error) {
	var s listing.State
	err := m.Run(ctx, "inspect", key, inspectWithin, func(ctx context.Context, named protocol.Resource) error {
		if err := m.Client().Reachable(ctx, named.FirstKey()); err != nil {
			return err
		}
		r := listing.Of(family.Prefix, family.Kind, family.Name, keys.Shown(key, family.Hash), total)
		// Keep the result in a variable of this function: the caller may have left.
		began := time.Now()
		read, err := listing.New(rdb, family.Prefix).State(ctx, r, listing.Bounds{})
		m.Client().Heard(named.FirstKey(), began, err)
		if err == nil {
			s = read
		}
		return err
	})
	if err != nil {
		return listing.State{}, err
	}
	return s, nil
}

var revokeScript = call.NewScript("revoke", luascripts.PermitsRevoke())

// Revoke prepares the call that takes a lease or a place away.
func (r *Resource) Revoke(member, id, reason string) *call.Call {
	return call.New(revokeScript, 6, r.keys[0], r.keys[1], r.keys[2], r.keys[3],
		keys.Beside(r.FirstKey(), "revoked"), keys.Beside(r.FirstKey(), "audit"), call.Flag(r.fenced), member, id, reason)
}

// Revoke takes the lease or the place of id away from its owner, for the handle m of a family.
func Revoke(ctx context.Context, m *lease.Manager, rdb redis.UniversalClient, family keys.Family, key, id, reason string, total bool) error {
	return revoke.Revoke(ctx, m, key, id, reason, func(ctx context.Context, r protocol.Resource) (protocol.Resource, string, error) {
		named := listing.Of(family.Prefix, family.Kind, family.Name, keys.Shown(key, family.Hash), total)
		// Search the queue first: a waiter that is granted meanwhile moves from there to the
		// holders.
		member, err := listing.New(rdb, family.Prefix).Find(ctx, named, id, "queue", "holders")
		return r, member, err
	})
}
