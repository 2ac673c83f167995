package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/mutex"
)

// Locker returns a locker for gocron.WithDistributedLocker or WithDistributedJobLocker. A tick
// is skipped where another process runs the job: a locker that waited would run it again.
//
// Prefer Task: a Locker relies on the hosts' clocks, does not tell a job that it lost its lock,
// and gives it no fencing token. The job must have a name (gocron.WithName) without a dot:
// without one, gocron uses the name of the function, such as "main.work", and all jobs of that
// function would share a lock. Lock refuses such a name with leasehold.ErrInvalid.
//
// cfg has MinHold alone. Locker's error matches leasehold.ErrInvalid and names every bad field. A
// run costs two round trips.
func Locker(m *mutex.Mutex, cfg Config) (gocron.Locker, error) {
	if err := errors.Join(
		keys.Unless(m != nil, "m", "is nil; want a mutex of mutex.New"),
		keys.Unless(cfg.MinHold >= time.Millisecond, "MinHold", "is %v; want at least 1ms", cfg.MinHold),
		keys.Unless(cfg.Slot == nil && cfg.Keep == 0 && cfg.Wait == 0 && cfg.Now == nil, "Slot, Keep, Wait or Now", "is set; a Locker has none"),
	); err != nil {
		return nil, fmt.Errorf("leasehold: gocronlock: bad configuration: %w", err)
	}
	return &locker{mutex: m, minHold: cfg.MinHold}, nil
}

type locker struct {
	mutex   *mutex.Mutex
	minHold time.Duration
}

func (l *locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	if strings.Contains(name, ".") {
		return nil, fmt.Errorf("leasehold: gocronlock: %w", keys.Invalid("the job is named %q, as a function is; want a gocron.WithName without a dot", name))
	}
	held, err := l.mutex.TryLock(ctx, name)
	if err != nil {
		return nil, err
	}
	return &lock{held: held, until: time.Now().Add(l.minHold)}, nil
}

type lock struct {
	held  *mutex.Lock
	until time.Time
}

// Unlock gives the lock back when it was held for MinHold. gocron ignores the error.
func (l *lock) Unlock(context.Context) error {
	if left := time.Until(l.until); left > 0 {
		time.AfterFunc(left, func() { _ = l.held.Unlock() }) // it expires if that fails
		return nil
	}
	return l.held.Unlock()
}
