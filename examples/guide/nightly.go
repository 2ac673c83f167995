package guide

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/mutex"
)

// Nightly runs a job once per day in the whole fleet.
type Nightly struct {
	At  time.Duration // after midnight UTC
	Job func(ctx context.Context, day string) error

	locks *mutex.Mutex
}

func NewNightly(rdb redis.UniversalClient, at time.Duration, job func(ctx context.Context, day string) error) (*Nightly, error) {
	locks, err := mutex.New(rdb, mutex.Config{Name: "nightly"})
	return &Nightly{At: at, Job: job, locks: locks}, err
}

// RunIfDue runs the job if its hour has passed and no process has completed it.
// Every process calls it once per minute. After an error, the next call of any
// process makes up for it.
func (n *Nightly) RunIfDue(ctx context.Context, now time.Time) error {
	day := now.UTC().Add(-n.At).Format(time.DateOnly)
	_, err := n.locks.TryDoOnce(ctx, "nightly", day, 72*time.Hour, func(ctx context.Context, _ uint64) error {
		return n.Job(ctx, day)
	})
	if errors.Is(err, leasehold.ErrBusy) {
		return nil // another process runs it
	}
	return err
}
