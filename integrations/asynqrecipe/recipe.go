// Package asynqrecipe is the code of the recipe for asynq in docs/integrations.md, so that it is
// compiled and tested. It is to be copied, not to be imported.
package asynqrecipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/semaphore"
)

// errNoPermit is the error of a task that got no permit, and has attempts left.
var errNoPermit = errors.New("no permit")

// capped is a middleware for asynq.ServeMux.Use. A task waits for a permit of its key for up to
// maxWait, which must be well below the Timeout of the task. On its last attempt it waits for
// as long as it takes, because asynq archives a task after its last attempt, for any reason of its
// failure. A task with the key "" needs no permit.
func capped(caps *semaphore.Semaphore, maxWait time.Duration, key func(*asynq.Task) string) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			k := key(task)
			if k == "" {
				return next.ProcessTask(ctx, task)
			}
			retried, _ := asynq.GetRetryCount(ctx)
			most, _ := asynq.GetMaxRetry(ctx)
			lease, err := acquire(ctx, caps, k, maxWait, retried >= most)
			if err != nil {
				return err
			}
			defer lease.Release()
			return next.ProcessTask(lease.Context(), task)
		})
	}
}

func acquire(ctx context.Context, caps *semaphore.Semaphore, key string, maxWait time.Duration, last bool) (*semaphore.Lease, error) {
	waiting, cancel := context.WithCancel(ctx) // asynq ends ctx after the task
	timer := time.AfterFunc(maxWait, func() {
		if !last {
			cancel()
		}
	})
	for {
		lease, err := caps.Acquire(waiting, key)
		switch {
		case err == nil && (last || timer.Stop()):
			return lease, nil // its ctx ends with ctx, not with the wait
		case err == nil:
			_ = lease.Release() // it came when the wait was over
			err = leasehold.ErrBusy
		case errors.Is(err, leasehold.ErrInvalid):
			cancel()
			return nil, fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		if !last {
			cancel()
			return nil, fmt.Errorf("%w: %w", errNoPermit, err)
		}
		select {
		case <-time.After(time.Second): // Redis is away, or the queue is full
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// serverConfig has what a refused task needs: it uses up no attempt, and comes back after the
// time that the semaphore estimates. asynq counts in seconds.
func serverConfig() asynq.Config {
	return asynq.Config{
		IsFailure: func(err error) bool { return !errors.Is(err, errNoPermit) },
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			var busy *leasehold.BusyError
			if errors.As(err, &busy) {
				return max(time.Second, busy.RetryAfter)
			}
			return asynq.DefaultRetryDelayFunc(n, err, task)
		},
	}
}
