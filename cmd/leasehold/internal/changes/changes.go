// Package changes changes what a fleet keeps in Redis, from beside it: it sets limits
// and totals, and revokes leases.
package changes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Limit is the setting of a limit or a total.
type Limit struct {
	Family, Key string
	Hashed      bool // Key is to be hashed, as the family does it
	Total       bool // the total of the family is set, not the limit of a key
	HasTotal    bool // the family has a total, which decides what keys it has in Redis
	N           int  // 0 = what the processes are configured with
}

// ErrFamily says that there can be no such family.
var ErrFamily = errors.New("no such family")

func Set(ctx context.Context, rdb redis.UniversalClient, prefix string, x Limit) error {
	s, err := permits(rdb, prefix, x.Family, x.Hashed, x.HasTotal || x.Total)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFamily, err)
	}
	if x.Total {
		err = s.SetTotal(ctx, x.N)
	} else {
		err = s.SetLimit(ctx, x.Key, x.N)
	}
	// Where thousands wait the rest is granted in the background: not without us.
	if closing := s.Close(ctx); err == nil {
		err = closing
	}
	return err
}

// Revocation takes a permit, a lock, a waiter or a load away.
type Revocation struct {
	Kind        keys.Kind // a semaphore, a mutex or a cache
	Family, Key string
	Hashed      bool   // Key is to be hashed, as the family does it
	HasTotal    bool   // the family has a total, which decides what keys it has in Redis
	ID          string // of the lease, the waiter or the load, as listings show it
	Reason      string // for its holder and for the audit
}

type revoker interface {
	Revoke(ctx context.Context, key, id, reason string) error
	Close(ctx context.Context) error
}

// Revoke revokes, by a handle as the processes of the family have one.
func Revoke(ctx context.Context, rdb redis.UniversalClient, prefix string, x Revocation) error {
	handle, err := open(rdb, prefix, x)
	if err != nil {
		return err
	}
	err = handle.Revoke(ctx, x.Key, x.ID, x.Reason)
	if closing := handle.Close(ctx); err == nil {
		err = closing
	}
	return err
}

func open(rdb redis.UniversalClient, prefix string, x Revocation) (handle revoker, err error) {
	switch x.Kind {
	case keys.Mutex:
		handle, err = mutex.New(rdb, mutex.Config{Name: x.Family, Prefix: prefix, HashKeys: x.Hashed})
	case keys.Flight:
		// The type of the values does not matter to a load that is revoked.
		handle, err = singleflight.New(rdb, singleflight.Config[string]{Name: x.Family, Prefix: prefix, HashKeys: x.Hashed, TTL: time.Minute})
	default:
		handle, err = permits(rdb, prefix, x.Family, x.Hashed, x.HasTotal)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFamily, err)
	}
	return handle, nil
}

// permits is a handle of a family of permits. The figures of its Config are for requests alone.
func permits(rdb redis.UniversalClient, prefix, family string, hashed, total bool) (*semaphore.Semaphore, error) {
	cfg := semaphore.Config{Name: family, Prefix: prefix, Limit: 1, HashKeys: hashed}
	if total {
		cfg.Total = 1
	}
	return semaphore.New(rdb, cfg)
}
