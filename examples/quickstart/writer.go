package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/mutex"
)

const (
	order    = "order-42"
	accepted = "accepted"
	refused  = "refused"
)

// writer is a process that locks the order and writes it under the guard, and
// once more with the same token when its parent says so.
func writer(ctx context.Context, rdb *redis.Client, name string, num int, orders <-chan string) error {
	locks, err := mutex.New(rdb, mutex.Config{Name: name, TTL: lockTTL})
	if err != nil {
		return err
	}
	lock, err := locks.Lock(ctx, order)
	if err != nil {
		return err
	}
	emit(event{Kind: locked, Token: lock.Token()})

	guard, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: name})
	if err != nil {
		return err
	}
	write := func() {
		// Not under the lock's Context, which ends when the lock is lost: this
		// is the holder that has looked just before it was paused, and is
		// already on its way to the resource. No client can rule that out.
		err := guard.Set(ctx, order, lock.Token(), writtenBy(num), time.Minute)
		e := event{Kind: wrote, Result: accepted}
		switch {
		case errors.Is(err, leasehold.ErrFenced):
			e.Result = refused
		case err != nil:
			e.Result = err.Error()
		}
		emit(e)
	}
	write()
	for {
		select {
		case <-orders:
			write()
		case <-ctx.Done():
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			return locks.Close(closing) // gives the lock back, where it still is ours
		}
	}
}

func writtenBy(num int) string { return "written by " + writerName(num) }

func writerName(num int) string { return string(rune('A' + num - 1)) }
