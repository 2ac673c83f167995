package mutex_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func Example() {
	rdb, stop := redistest.Connect()
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
	rdb, stop := redistest.Connect()
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
