// Package captest is what the tests of the adapters have in common.
package captest

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
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
	closeAtEnd(t, caps)
	return caps
}

// Mutex makes a handle that is closed at the end of the test.
func Mutex(t testing.TB, rdb redis.UniversalClient, cfg mutex.Config) *mutex.Mutex {
	t.Helper()
	m := redistest.Must(mutex.New(rdb, cfg))(t)
	closeAtEnd(t, m)
	return m
}

func closeAtEnd(t testing.TB, handle interface{ Close(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), redistest.Soon)
		defer cancel()
		_ = handle.Close(ctx)
	})
}

// Blocker is work that goes on until Release, or until its ctx ends.
type Blocker struct {
	Started chan context.Context // of each piece of work that has begun
	end     chan struct{}
	Release func() // it may be called again; the end of the test calls it, too
}

// NewBlocker makes a Blocker.
func NewBlocker(t testing.TB) *Blocker {
	end := make(chan struct{})
	b := &Blocker{Started: make(chan context.Context, 1000), end: end, Release: sync.OnceFunc(func() { close(end) })}
	t.Cleanup(b.Release)
	return b
}

// Work is one piece of the work.
func (b *Blocker) Work(ctx context.Context) error {
	b.Started <- ctx
	select {
	case <-b.end:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

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
