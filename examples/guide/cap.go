package guide

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/semaphore"
)

// Exports runs at most ten exports per tenant, in all processes together.
type Exports struct{ caps *semaphore.Semaphore }

func NewExports(rdb redis.UniversalClient) (*Exports, error) {
	caps, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 10})
	return &Exports{caps}, err
}

func (e *Exports) Run(ctx context.Context, tenant string) error {
	return e.caps.Do(ctx, tenant, func(ctx context.Context) error {
		// This ctx ends before another process can be granted this permit.
		fmt.Println("exporting for", tenant)
		return nil
	})
}

// Close is called at the end of the program. It lets the exports that run finish.
func (e *Exports) Close(ctx context.Context) error { return e.caps.Shutdown(ctx) }
