package permits

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/protocol"
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
