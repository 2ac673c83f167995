package guide

import (
	"context"

	"github.com/leasehold-go/leasehold/mutex"
)

// Serve runs work each time this process leads, until ctx ends.
func Serve(ctx context.Context, locks *mutex.Mutex, work func(ctx context.Context, token uint64) error) error {
	err := locks.Lead(ctx, "leader", work)
	if ctx.Err() != nil {
		return nil // asked to end; the next process leads already
	}
	return err // work has failed, or rights are missing
}
