package guide

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/semaphore"
)

// At most ten exports run per tenant, in all processes together.
func exportUnderCap(ctx context.Context, rdb redis.UniversalClient, tenant string) error {
	caps, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 10})
	if err != nil {
		return err
	}
	defer caps.Close(ctx)

	return caps.Do(ctx, tenant, func(ctx context.Context) error {
		// This ctx ends before another process can be granted this permit.
		fmt.Println("exporting for", tenant)
		return nil
	})
}
