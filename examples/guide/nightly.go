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
	done  *mutex.Guard // "done" under each day whose job was completed
}

func NewNightly(rdb redis.UniversalClient, at time.Duration, job func(ctx context.Context, day string) error) (*Nightly, error) {
	locks, err := mutex.New(rdb, mutex.Config{Name: "nightly"})
	if err != nil {
		return nil, err
	}
	done, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: "nightly"})
	if err != nil {
		return nil, err
	}
	return &Nightly{At: at, Job: job, locks: locks, done: done}, nil
}

// RunIfDue runs the job if its hour has passed and no process has completed it.
// Every process calls it once per minute. After an error, the next call of any
// process makes up for it.
func (n *Nightly) RunIfDue(ctx context.Context, now time.Time) error {
	day := now.UTC().Add(-n.At).Format(time.DateOnly)
	if _, done, err := n.done.Get(ctx, day); err != nil || done {
		return err
	}
	lock, err := n.locks.TryLock(ctx, day)
	if errors.Is(err, leasehold.ErrBusy) {
		return nil // another process runs it
	}
	if err != nil {
		return err // Redis is away
	}
	defer lock.Unlock()
	ctx = lock.Context()
	// Another process may have completed it between the two calls above.
	if _, done, err := n.done.Get(ctx, day); err != nil || done {
		return err
	}
	if err := n.Job(ctx, day); err != nil {
		return err
	}
	return n.done.Set(ctx, day, lock.Token(), "done", 72*time.Hour)
}
