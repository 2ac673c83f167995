// Package rivercap caps the jobs that River works at the same time, per key and in all processes together.
//
//	capped, err := rivercap.New(caps, rivercap.Config{
//		Key: func(job *rivertype.JobRow) string { return tenantOf(job) },
//	})
//	…
//	client, err := river.NewClient(driver, &river.Config{Middleware: []rivertype.Middleware{capped}, …})
//
// A job without a permit waits for a moment and is then snoozed, which uses up no attempt.
// docs/integrations.md says what happens in between.
package rivercap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/internal/gate"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The values of a Config's fields that are 0.
const (
	DefaultMaxWait          = 500 * time.Millisecond
	DefaultMaxWaiters       = 32
	DefaultUnavailableDelay = 10 * time.Second
)

// Config configures the middleware of New.
type Config struct {
	// Key returns the key whose permits a job needs, for example its tenant. "": the job needs
	// no permit. Key must not block. It is required.
	Key func(job *rivertype.JobRow) string

	// Permits returns how many permits a job needs, 1 to the limit of its key. It is not
	// called for a job without a key, and must not block. nil: each job needs 1.
	Permits func(job *rivertype.JobRow) int

	// MaxWait bounds how long a job waits for its permits before it is snoozed, at least 1 ms. Meanwhile it occupies a
	// worker, and counts as running. Without any wait, a tenant with many jobs would make a number of snoozes that
	// grows with the square of that number. 0: 500 ms.
	MaxWait time.Duration

	// MaxWaiters bounds how many jobs of a key wait in this process, at least 1. A job beyond that is snoozed if it
	// gets no permit at once. Set it to about two thirds of the MaxWorkers of the queue: the rest is left to other
	// keys. With a low number permits lie idle, because River looks for snoozed jobs only once a second
	// (FetchPollInterval). 0: 32.
	MaxWaiters int

	// UnavailableDelay is how long a job is snoozed while Redis cannot be asked, at least 1 ms.
	// Up to half of it is added at random, so that the jobs do not come back together. 0: 10 s.
	UnavailableDelay time.Duration
}

// Middleware is a rivertype.WorkerMiddleware. It is safe for concurrent use, also by several clients.
type Middleware struct {
	gate  *gate.Gate
	cfg   Config
	lines lines
}

// New checks cfg. Its error matches leasehold.ErrInvalid and names every bad field. The caller
// keeps sem, and closes it after the client has stopped. Capping a job costs an Acquire and a
// Release, two round trips, and each snooze costs what River's do: the update of a row.
func New(sem *semaphore.Semaphore, cfg Config) (*Middleware, error) {
	cfg.MaxWait = cmp.Or(cfg.MaxWait, DefaultMaxWait)
	cfg.MaxWaiters = cmp.Or(cfg.MaxWaiters, DefaultMaxWaiters)
	cfg.UnavailableDelay = cmp.Or(cfg.UnavailableDelay, DefaultUnavailableDelay)
	const least = time.Millisecond
	g, err := gate.New("rivercap", sem, false,
		keys.Unless(cfg.Key != nil, "Key", "is nil; want a function"),
		keys.Unless(cfg.MaxWait >= least, "MaxWait", "is %v; want at least 1ms, or 0 for %v", cfg.MaxWait, DefaultMaxWait),
		keys.Unless(cfg.MaxWaiters >= 1, "MaxWaiters", "is %d; want at least 1, or 0 for %d", cfg.MaxWaiters, DefaultMaxWaiters),
		keys.Unless(cfg.UnavailableDelay >= least, "UnavailableDelay", "is %v; want at least 1ms, or 0 for %v",
			cfg.UnavailableDelay, DefaultUnavailableDelay))
	if err != nil {
		return nil, err
	}
	if cfg.Permits == nil {
		cfg.Permits = func(*rivertype.JobRow) int { return 1 }
	}
	return &Middleware{gate: g, cfg: cfg}, nil
}

// IsMiddleware makes it a rivertype.Middleware.
func (m *Middleware) IsMiddleware() bool { return true }

// Work works job under its permits. Its ctx is the lease's. Work returns a
// *rivertype.JobSnoozeError, which uses up no attempt,
//
//   - if there is no permit in time, or Redis cannot be asked;
//   - if the job failed after it had lost its lease, or after the semaphore was closed. But a
//     job that reached the semaphore's MaxHold fails with leasehold.ErrMaxHold;
//   - if the job's ctx ended while it waited, because its client stops.
//
// A job that can never be served fails with leasehold.ErrInvalid. Otherwise Work returns the error of the job.
func (m *Middleware) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	key := m.cfg.Key(job)
	if key == "" {
		return doInner(ctx)
	}
	pass, err := m.enter(ctx, key, m.cfg.Permits(job))
	if err != nil {
		return m.postpone(ctx, key, err)
	}
	defer pass.Leave()
	work := pass.Context(ctx)
	err = doInner(work)
	if err == nil || !pass.Lost(ctx, work) {
		return err
	}
	switch cause := context.Cause(work); {
	case errors.Is(err, &rivertype.JobSnoozeError{}), errors.Is(err, &rivertype.JobCancelError{}):
		return err // the job knows what it wants
	case errors.Is(cause, leasehold.ErrMaxHold):
		return fmt.Errorf("%w: %w", leasehold.ErrMaxHold, err) // it would take as long the next time
	case errors.Is(cause, leasehold.ErrClosed):
		return snooze(0) // another process can work it
	default:
		return m.snoozeForOutage() // the lease was lost because Redis is away, or to an operator
	}
}

// enter takes the permits of a job. Its place in the line goes also if LimitFor panics.
func (m *Middleware) enter(ctx context.Context, key string, permits int) (gate.Pass, error) {
	enter := m.gate.Enter
	if m.lines.join(key) > m.cfg.MaxWaiters {
		enter = m.gate.Try
	}
	defer m.lines.leave(key)
	return enter(ctx, key, permits, m.cfg.MaxWait)
}

// postpone returns the error for a job that got no permit.
func (m *Middleware) postpone(ctx context.Context, key string, err error) error {
	switch {
	case gate.KindOf(err) == gate.KindInvalid:
		return err
	case ctx.Err() != nil:
		return snooze(0) // River reports a job that was cancelled as such all the same
	case gate.KindOf(err) == gate.KindUnavailable:
		return m.snoozeForOutage()
	default:
		return snooze(m.lines.delay(key, err))
	}
}

func (m *Middleware) snoozeForOutage() error {
	return snooze(m.cfg.UnavailableDelay + rand.N(m.cfg.UnavailableDelay/2+1))
}

func snooze(d time.Duration) error { return &rivertype.JobSnoozeError{Duration: d} }
