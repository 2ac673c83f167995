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

// LockerConfig configures a Locker.
type LockerConfig struct {
	// MinHold is how long a lock is held at least, also if the job ends sooner. It must be
	// longer than the time by which the hosts' clocks can differ, or a short job runs on
	// several hosts, one after the other, and shorter than the time between two ticks, or ticks
	// are skipped. It is required, and at least 1 ms.
	MinHold time.Duration
}

// Locker returns a locker for gocron.WithDistributedLocker or WithDistributedJobLocker. A tick
// is skipped where another process runs the job: a locker that waited would run it again.
//
// Prefer Task: a Locker relies on the hosts' clocks, does not tell a job that it lost its lock,
// and gives it no fencing token. The job must have a name (gocron.WithName) without a dot:
// without one, gocron uses the name of the function, such as "main.work", and all jobs of that
// function would share a lock. Lock refuses such a name with leasehold.ErrInvalid.
//
// Its error matches leasehold.ErrInvalid and names every bad field. A run costs two round trips.
func Locker(m *mutex.Mutex, cfg LockerConfig) (gocron.Locker, error) {
	var problems []error
	if m == nil {
		problems = append(problems, keys.Bad("m", "is nil; want a mutex of mutex.New"))
	}
	if cfg.MinHold < time.Millisecond {
		problems = append(problems, keys.Bad("MinHold", "is %v; want at least 1ms", cfg.MinHold))
	}
	if err := errors.Join(problems...); err != nil {
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
