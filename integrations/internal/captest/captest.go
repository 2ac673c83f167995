// Package captest is what the tests of the adapters have in common.
package captest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Tenant is the key of the tests.
const Tenant = "acme"

// New makes a handle that is closed at the end of the test. Its name is the test's, if cfg has none.
func New(t testing.TB, rdb redis.UniversalClient, cfg semaphore.Config) *semaphore.Semaphore {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = redistest.Name(t)
	}
	caps := redistest.Must(semaphore.New(rdb, cfg))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), redistest.Soon)
		defer cancel()
		_ = caps.Close(ctx)
	})
	return caps
}

// Client returns a client of an embedded server of its own.
func Client(t testing.TB) redis.UniversalClient { return redistest.MiniClient(t) }

// Revoke takes away the only lease.
func Revoke(t testing.TB, caps *semaphore.Semaphore) {
	t.Helper()
	s, err := caps.Inspect(t.Context(), Tenant)
	redistest.CheckNow(t, err == nil && len(s.Holders) == 1, "%+v, %v", s, err)
	redistest.WantErr(t, caps.Revoke(t.Context(), Tenant, s.Holders[0].ID, "a test"))
}

// WantState waits until so many permits are in use, and so much work waits for them.
func WantState(t testing.TB, caps *semaphore.Semaphore, inUse, waiting int) {
	t.Helper()
	redistest.Eventually(t, "permits in use and waiting work as they should be", func() bool {
		s, err := caps.Inspect(context.Background(), Tenant)
		return err == nil && s.InUse == inUse && s.Waiting == waiting
	})
}
