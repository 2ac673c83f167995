package guide

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/mutex"
)

// Orders lets one process at a time work on an order. A process that was paused for too long
// cannot overwrite what a later one wrote.
type Orders struct {
	locks  *mutex.Mutex
	states *mutex.Guard
}

func NewOrders(rdb redis.UniversalClient) (*Orders, error) {
	locks, err := mutex.New(rdb, mutex.Config{Name: "orders"})
	states, guardErr := mutex.NewGuard(rdb, mutex.GuardConfig{Name: "order-states"})
	return &Orders{locks, states}, errors.Join(err, guardErr)
}

func (o *Orders) Ship(ctx context.Context, order string) error {
	return o.locks.Do(ctx, order, func(ctx context.Context, token uint64) error {
		// leasehold.ErrFenced if a later holder of the lock has written already.
		return o.states.Set(ctx, order, token, "shipped", 24*time.Hour)
	})
}

func (o *Orders) Close(ctx context.Context) error { return o.locks.Shutdown(ctx) }
