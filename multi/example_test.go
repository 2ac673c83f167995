package multi_test

import (
	"context"
	"fmt"
	"log"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func Example() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()

	accounts, err := mutex.New(rdb, mutex.Config{Name: "accounts"})
	if err != nil {
		log.Fatal(err)
	}
	defer accounts.Close(ctx)

	// Another caller may name them the other way round: there is no deadlock.
	err = multi.Do(ctx, func(ctx context.Context, l *multi.Lease) error {
		if l.Token(accounts, "alice") > 0 && l.Token(accounts, "bob") > 0 {
			fmt.Println("both are locked")
		}
		return nil
	}, multi.Lock(accounts, "bob"), multi.Lock(accounts, "alice"))
	if err != nil {
		log.Fatal(err)
	}
	// Output: both are locked
}

func ExampleTryAcquire() {
	rdb, stop := redistest.Connect()
	defer stop()
	ctx := context.Background()

	tenants, err := semaphore.New(rdb, semaphore.Config{Name: "tenants", Limit: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer tenants.Close(ctx)
	regions, err := semaphore.New(rdb, semaphore.Config{Name: "regions", Limit: 100})
	if err != nil {
		log.Fatal(err)
	}
	defer regions.Close(ctx)

	// A request needs a permit of its tenant and one of its region, or is refused.
	l, err := multi.TryAcquire(ctx, multi.Permits(tenants, "acme", 1), multi.Permits(regions, "eu", 1))
	if err != nil {
		log.Fatal(err) // leasehold.ErrBusy: 429
	}
	defer l.Release()
	fmt.Println(l.Context().Err())
	// Output: <nil>
}
