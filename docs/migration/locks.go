package migration

import (
	"context"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/rueidis/rueidislock"

	"github.com/leasehold-go/leasehold/mutex"
)

// work is what a program does under its lock, for an order.
type work func(ctx context.Context, id string) error

// release is a version of a program that does its work under a lock.
type release func(ctx context.Context, id string, ship work) error

func redislockOnly(client *redislock.Client) release {
	return func(ctx context.Context, id string, ship work) error {
		lock, err := client.Obtain(ctx, "order:"+id, 30*time.Second, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
		})
		if err != nil {
			return err
		}
		defer lock.Release(context.WithoutCancel(ctx))
		return ship(ctx, id)
	}
}

const forever = math.MaxInt

func redsyncOnly(rs *redsync.Redsync) release {
	return func(ctx context.Context, id string, ship work) error {
		lock := rs.NewMutex("order:"+id, redsync.WithExpiry(30*time.Second), redsync.WithTries(forever))
		if err := lock.LockContext(ctx); err != nil {
			return err
		}
		defer lock.UnlockContext(context.WithoutCancel(ctx))
		return ship(ctx, id)
	}
}

func rueidislockOnly(locker rueidislock.Locker) release {
	return func(ctx context.Context, id string, ship work) error {
		held, unlock, err := locker.WithContext(ctx, "order:"+id)
		if err != nil {
			return err
		}
		defer unlock()
		return ship(held, id)
	}
}

// leaseholdOnly is the last release of each migration.
func leaseholdOnly(locks *mutex.Mutex) release {
	return func(ctx context.Context, id string, ship work) error {
		return locks.Do(ctx, id, func(ctx context.Context, token uint64) error {
			return ship(ctx, id) // hand token to what it writes
		})
	}
}

// underBoth is the intermediate release: the last one's code stands where the first one does its work.
func underBoth(first, last release) release {
	return func(ctx context.Context, id string, ship work) error {
		return first(ctx, id, func(ctx context.Context, id string) error { return last(ctx, id, ship) })
	}
}
