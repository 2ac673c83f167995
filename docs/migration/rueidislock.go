package migration

import (
	"context"

	"github.com/redis/rueidis/rueidislock"

	"github.com/leasehold-go/leasehold/mutex"
)

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

func rueidislockAndLeasehold(locker rueidislock.Locker, locks *mutex.Mutex) release {
	return func(ctx context.Context, id string, ship work) error {
		held, unlock, err := locker.WithContext(ctx, "order:"+id)
		if err != nil {
			return err
		}
		defer unlock()
		// Under held, so that the work ends when either lock is lost.
		return locks.Do(held, id, func(ctx context.Context, token uint64) error {
			return ship(ctx, id) // hand token to what it writes
		})
	}
}
