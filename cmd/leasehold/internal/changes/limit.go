// Package changes changes what a fleet keeps in Redis, from beside it: it sets limits
// and totals, and revokes leases.
package changes

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Limit is the setting of a limit or a total.
type Limit struct {
	Family, Key string
	Hashed      bool // Key is to be hashed, as the family does it
	Total       bool // the total of the family is set, not the limit of a key
	HasTotal    bool // the family is known to have a total; else what is in Redis says so
	N           int  // 0 = what the processes are configured with
}

// ErrFamily says that there can be no such family.
var ErrFamily = errors.New("no such family")

// Set sets a limit, by a handle as the processes of the family have one.
func Set(ctx context.Context, rdb redis.UniversalClient, prefix string, x Limit) error {
	cfg := semaphore.Config{Name: x.Family, Prefix: prefix, Limit: 1, HashKeys: x.Hashed}
	has := x.HasTotal || x.Total
	if !has {
		var err error
		if has, err = totalled(ctx, rdb, prefix, x.Family); err != nil {
			return err
		}
	}
	if has {
		cfg.Total = 1 // that it has one decides which keys of Redis are its; the figure is for requests alone
	}
	s, err := semaphore.New(rdb, cfg)
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

// totalled says whether something of a family with a total is in Redis.
func totalled(ctx context.Context, rdb redis.UniversalClient, prefix, family string) (bool, error) {
	r := listing.Of(prefix, keys.Semaphore, family, "", true)
	n, err := rdb.Exists(ctx, r.Part("holders"), r.Part("queue"), r.Part("limits"), r.Part("alive"), r.Part("turns")).Result()
	return n > 0, err
}
