package migration

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/leasehold-go/leasehold/mutex"
)

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

func redsyncAndLeasehold(rs *redsync.Redsync, locks *mutex.Mutex) release {
	return func(ctx context.Context, id string, ship work) error {
		old := rs.NewMutex("order:"+id, redsync.WithExpiry(30*time.Second), redsync.WithTries(forever))
		if err := old.LockContext(ctx); err != nil {
			return err
		}
		defer old.UnlockContext(context.WithoutCancel(ctx))
		return locks.Do(ctx, id, func(ctx context.Context, token uint64) error {
			return ship(ctx, id) // hand token to what it writes
		})
	}
}
