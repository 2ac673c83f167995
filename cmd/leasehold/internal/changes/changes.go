// Package changes changes what a fleet keeps in Redis, from beside it: it sets limits and totals, and revokes
// leases. A key of a family with HashKeys is known by its hash, which is what Redis has: it is not hashed again.
package changes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// ErrFamily says that there can be no such family.
var ErrFamily = errors.New("no such family")

// Set sets the limit of a key, or the total of a family; 0 is what the processes are configured with.
func Set(ctx context.Context, rdb redis.UniversalClient, prefix string, of listing.Resource, n int) error {
	return with(ctx, rdb, prefix, of, func(h handle) error {
		s := h.(*semaphore.Semaphore)
		if of.Key == "" {
			return s.SetTotal(ctx, n)
		}
		return s.SetLimit(ctx, of.Key, n)
	})
}

// Revoke takes a lease, a waiter's place or the right to load away, by its id as listings show it. The reason is
// for its holder and for the audit. One of a quorum's servers can't take its lock away.
func Revoke(ctx context.Context, rdb redis.UniversalClient, prefix string, of listing.Resource, id, reason string) error {
	if of.Kind == keys.Quorum {
		s, err := listing.New(rdb, prefix).State(ctx, of, listing.Bounds{})
		if err == nil && s.InUse+len(s.Waiters) > 0 {
			return fmt.Errorf("%w: several servers decide this lock, and only Revoke of a handle of all of them takes it away", leasehold.ErrInvalid)
		}
		return leasehold.ErrNoLease
	}
	return with(ctx, rdb, prefix, of, func(h handle) error { return h.Revoke(ctx, of.Key, id, reason) })
}

type handle interface {
	Revoke(ctx context.Context, key, id, reason string) error
	Close(ctx context.Context) error
}

// with makes a handle as the processes of the family have one. The figures of its Config are for requests alone.
func with(ctx context.Context, rdb redis.UniversalClient, prefix string, of listing.Resource, do func(handle) error) error {
	var h handle
	var err error
	switch of.Kind {
	case keys.Mutex:
		h, err = mutex.New(rdb, mutex.Config{Name: of.Family, Prefix: prefix})
	case keys.Flight:
		// The type of the values does not matter to a load that is revoked.
		h, err = singleflight.New(rdb, singleflight.Config[string]{Name: of.Family, Prefix: prefix, TTL: time.Minute})
	default:
		cfg := semaphore.Config{Name: of.Family, Prefix: prefix, Limit: 1}
		if of.HasTotal {
			cfg.Total = 1
		}
		h, err = semaphore.New(rdb, cfg)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFamily, err)
	}
	err = do(h)
	// Where thousands wait the rest is granted in the background: not without us.
	if closing := h.Close(ctx); err == nil {
		err = closing
	}
	return err
}
