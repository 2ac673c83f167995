package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/semaphore"
)

// connect returns a client of an embedded server, so that the examples run
// anywhere. A program uses its own: redis.NewClient, NewFailoverClient or
// NewClusterClient.
func connect() (*redis.Client, func()) {
	srv := miniredis.NewMiniRedis()
	srv.ClockTTL(true)
	if err := srv.Start(); err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	return rdb, func() { _ = rdb.Close(); srv.Close() }
}

func export(ctx context.Context, tenant string) error {
	fmt.Println("exporting for", tenant)
	return ctx.Err()
}

func Example() {
	rdb, stop := connect()
	defer stop()
	ctx := context.Background()

	caps, err := semaphore.New(rdb, semaphore.Config{
		Name:     "exports",
		Limit:    10, // permits a tenant, in the whole fleet
		LimitFor: func(tenant string) int { return map[string]int{"acme": 50}[tenant] },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer caps.Close(ctx)

	err = caps.Do(ctx, "globex", func(ctx context.Context) error {
		return export(ctx, "globex") // ctx ends before anybody else gets the permit
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: exporting for globex
}

func ExampleSemaphore_Acquire() {
	rdb, stop := connect()
	defer stop()
	caps, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer caps.Close(context.Background())
	busy, err := caps.Acquire(context.Background(), "acme")
	if err != nil {
		log.Fatal(err)
	}
	defer busy.Release()

	// Wait for 50 ms at most. A context.WithTimeout would also end the work: ctx
	// is the parent of the lease's Context.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	patience := time.AfterFunc(50*time.Millisecond, cancel)
	lease, err := caps.Acquire(ctx, "acme")
	inTime := patience.Stop()
	var queue *leasehold.BusyError
	switch {
	case errors.As(err, &queue):
		fmt.Printf("busy: %d of %d in use\n", queue.InUse, queue.Limit)
	case err != nil:
		log.Fatal(err)
	case !inTime: // granted when ctx was just ending: the work must not begin
		_ = lease.Release()
	default:
		defer lease.Release()
	}
	// Output: busy: 1 of 1 in use
}

func ExampleSemaphore_TryAcquire() {
	rdb, stop := connect()
	defer stop()
	ctx := context.Background()
	caps, err := semaphore.New(rdb, semaphore.Config{Name: "uploads", Limit: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer caps.Close(ctx)

	lease, err := caps.TryAcquire(ctx, "acme")
	if errors.Is(err, leasehold.ErrBusy) {
		return // answer 429, come back later
	}
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := lease.Release(); errors.Is(err, leasehold.ErrLost) {
			fmt.Println("the work ran beside another's")
		}
	}()
	fmt.Println("uploading for", lease.Key())
	// Output: uploading for acme
}

func ExampleSemaphore_AcquireN() {
	rdb, stop := connect()
	defer stop()
	ctx := context.Background()
	memory, err := semaphore.New(rdb, semaphore.Config{Name: "gigabytes", Limit: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer memory.Close(ctx)

	// A job that needs 16 of 64: all or none, and small jobs don't starve it.
	lease, err := memory.AcquireN(ctx, "render-farm", 16)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	fmt.Println("rendering")
	// Output: rendering
}
