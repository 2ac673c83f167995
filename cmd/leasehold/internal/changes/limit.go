// Package changes changes what a fleet keeps in Redis, from beside it: it sets limits
// and totals, and revokes leases.
package changes

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/semaphore"
)

// Limit is the setting of a limit or a total.
type Limit struct {
	Family, Key string
	Hashed      bool // Key is to be hashed, as the family does it
	Total       bool // the total of the family is set, not the limit of a key
	HasTotal    bool // the family has a total, which decides what keys it has in Redis
	N           int  // 0 = what the processes are configured with
}

// anyTotal makes a handle one of a family with a total; its figure is for requests alone.
const anyTotal = 1

// ErrFamily says that there can be no such family.
var ErrFamily = errors.New("no such family")

// Set sets a limit, by a handle as the processes of the family have one.
func Set(ctx context.Context, rdb redis.UniversalClient, prefix string, x Limit) error {
	cfg := semaphore.Config{Name: x.Family, Prefix: prefix, Limit: 1, HashKeys: x.Hashed}
	if x.HasTotal || x.Total {
		cfg.Total = anyTotal
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
