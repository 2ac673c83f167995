package migration

import (
	"context"
	"time"

	"github.com/bsm/redislock"

	"github.com/leasehold-go/leasehold/mutex"
)

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

func redislockAndLeasehold(client *redislock.Client, locks *mutex.Mutex) release {
	return func(ctx context.Context, id string, ship work) error {
		old, err := client.Obtain(ctx, "order:"+id, 30*time.Second, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
		})
		if err != nil {
			return err
		}
		defer old.Release(context.WithoutCancel(ctx))
		return locks.Do(ctx, id, func(ctx context.Context, token uint64) error {
			return ship(ctx, id) // hand token to what it writes
		})
	}
}
