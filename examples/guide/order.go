package guide

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/mutex"
)

// One process at a time works on an order, and a process that was paused for
// too long cannot overwrite what a later one wrote.
func shipOrder(ctx context.Context, rdb redis.UniversalClient, order string) error {
	locks, err := mutex.New(rdb, mutex.Config{Name: "orders"})
	if err != nil {
		return err
	}
	defer locks.Close(ctx)
	states, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: "order-states"})
	if err != nil {
		return err
	}

	return locks.Do(ctx, order, func(ctx context.Context, token uint64) error {
		// leasehold.ErrFenced if a later holder of the lock has written already.
		return states.Set(ctx, order, token, "shipped", 24*time.Hour)
	})
}
