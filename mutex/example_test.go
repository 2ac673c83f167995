package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/mutex"
)

// connect returns a client of an embedded server, so that the examples run anywhere. A program
// uses a client of its own: redis.NewClient, NewFailoverClient or NewClusterClient.
func connect() (*redis.Client, func()) {
	srv := miniredis.NewMiniRedis()
	srv.ClockTTL(true)
	if err := srv.Start(); err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	return rdb, func() { _ = rdb.Close(); srv.Close() }
}

func Example() {
	rdb, stop := connect()
	defer stop()
	ctx := context.Background()

	locks, err := mutex.New(rdb, mutex.Config{Name: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	states, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: "order-states"})
	if err != nil {
		log.Fatal(err)
	}

	err = locks.Do(ctx, "order-7", func(ctx context.Context, token uint64) error {
		// This returns ErrFenced if a later holder has written, however long this process was
		// paused.
		return states.Set(ctx, "order-7", token, "shipped", 24*time.Hour)
	})
	if err != nil {
		log.Fatal(err)
	}
	state, _, err := states.Get(ctx, "order-7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(state)
	// Output: shipped
}

func ExampleMutex_Lock() {
	rdb, stop := connect()
	defer stop()
	ctx := context.Background()
	locks, err := mutex.New(rdb, mutex.Config{Name: "reports"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	lock, err := locks.Lock(ctx, "2026-11") // waits for its turn
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock()

	for page := range 3 {
		if lock.Context().Err() != nil { // the lock is lost: stop before another holder begins
			log.Fatal(context.Cause(lock.Context()))
		}
		fmt.Println("page", page)
	}
	// Output:
	// page 0
	// page 1
	// page 2
}

func ExampleGuard_Set() {
	rdb, stop := connect()
	defer stop()
	ctx := context.Background()
	locks, err := mutex.New(rdb, mutex.Config{Name: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	states, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: "order-states"})
	if err != nil {
		log.Fatal(err)
	}

	// The first holder loses its lock without noticing, and a second one writes.
	first, err := locks.Lock(ctx, "order-7")
	if err != nil {
		log.Fatal(err)
	}
	stale := first.Token()
	_ = first.Unlock()
	err = locks.Do(ctx, "order-7", func(ctx context.Context, token uint64) error {
		return states.Set(ctx, "order-7", token, "cancelled", time.Hour)
	})
	if err != nil {
		log.Fatal(err)
	}

	err = states.Set(ctx, "order-7", stale, "shipped", time.Hour)
	state, _, getErr := states.Get(ctx, "order-7")
	if getErr != nil {
		log.Fatal(getErr)
	}
	fmt.Println(errors.Is(err, leasehold.ErrFenced), state)
	// Output: true cancelled
}
