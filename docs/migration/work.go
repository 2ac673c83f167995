package migration

import (
	"context"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/mutex"
)

// work is what a program does under its lock, for an order.
type work func(ctx context.Context, id string) error

// release is a version of a program that does its work under a lock.
type release func(ctx context.Context, id string, ship work) error

const forever = math.MaxInt

func newMutex(rdb redis.UniversalClient) (*mutex.Mutex, error) {
	locks, err := mutex.New(rdb, mutex.Config{Name: "orders"})
	if err != nil {
		return nil, err
	}
	return locks, nil
}

// leaseholdOnly is the last release of each migration.
func leaseholdOnly(locks *mutex.Mutex) release {
	return func(ctx context.Context, id string, ship work) error {
		return locks.Do(ctx, id, func(ctx context.Context, token uint64) error {
			return ship(ctx, id) // hand token to what it writes
		})
	}
}
