package guide

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Retry: the work must be done, and only under its cap. It waits for Redis as
// long as ctx lives.
func runWhenPossible(ctx context.Context, caps *semaphore.Semaphore, key string, work func(context.Context) error) error {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		lease, err := caps.Acquire(ctx, key)
		if err == nil {
			defer lease.Release()
			return work(lease.Context())
		}
		if !errors.Is(err, leasehold.ErrUnavailable) {
			return err
		}
		slog.Warn("waiting for Redis", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Skip: the work comes round again, as a periodic clean-up does.
func runIfPossible(ctx context.Context, caps *semaphore.Semaphore, key string, work func(context.Context) error) error {
	lease, err := caps.TryAcquire(ctx, key)
	switch {
	case errors.Is(err, leasehold.ErrBusy):
		return nil
	case errors.Is(err, leasehold.ErrUnavailable):
		slog.Warn("skipped without Redis", "error", err)
		return nil
	case err != nil:
		return err
	}
	defer lease.Release()
	return work(lease.Context())
}

// Run without: the cap only protects a resource that survives some more load.
// local bounds the work of this process meanwhile.
func runAnyway(ctx context.Context, caps *semaphore.Semaphore, local chan struct{}, key string, work func(context.Context) error) error {
	lease, err := caps.Acquire(ctx, key)
	if err == nil {
		defer lease.Release()
		return work(lease.Context())
	}
	if !errors.Is(err, leasehold.ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	slog.Warn("running without the cap", "error", err)
	select {
	case local <- struct{}{}:
		defer func() { <-local }()
		return work(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}
