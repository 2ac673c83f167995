package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func export(ctx context.Context, tenant string) error {
	fmt.Println("exporting for", tenant)
	return ctx.Err()
}

func Example() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()

	caps, err := semaphore.New(rdb, semaphore.Config{
		Name:     "exports",
		Limit:    10, // permits per tenant, in the whole fleet
		LimitFor: func(tenant string) int { return map[string]int{"acme": 50}[tenant] },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer caps.Close(ctx)

	err = caps.Do(ctx, "globex", func(ctx context.Context) error {
		return export(ctx, "globex") // ctx ends before another caller gets the permit
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: exporting for globex
}

func ExampleSemaphore_Acquire() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()
	caps, err := semaphore.New(rdb, semaphore.Config{
		Name: "exports", Limit: 1,
		MaxWait: 500 * time.Millisecond, // bounds the wait, not the work
	})
	if err != nil {
		log.Fatal(err)
	}
	defer caps.Close(ctx)
	first, err := caps.Acquire(ctx, "acme")
	if err != nil {
		log.Fatal(err)
	}
	defer first.Release()

	second, err := caps.Acquire(ctx, "acme")
	var busy *leasehold.BusyError
	if errors.As(err, &busy) {
		fmt.Printf("busy: %d of %d in use\n", busy.InUse, busy.Limit)
		return // answer 429, with busy.RetryAfter
	}
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release()
	// Output: busy: 1 of 1 in use
}

func ExampleSemaphore_AcquireN() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()
	memory, err := semaphore.New(rdb, semaphore.Config{Name: "gigabytes", Limit: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer memory.Close(ctx)

	// This job needs 16 of 64 permits. It gets all or none, and small jobs do not starve it.
	lease, err := memory.AcquireN(ctx, "render-farm", 16)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release()
	fmt.Println("rendering")
	// Output: rendering
}
