package semaphore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"
	"github.com/leasehold-go/leasehold/internal/totals"
)

// Semaphore is a handle on a family of counted semaphores, one a key. It is safe
// for concurrent use, and meant to be made once a process and family. It has
// goroutines and a subscription only while something is held or waited for.
type Semaphore struct {
	cfg    Config
	rdb    redis.UniversalClient
	m      *lease.Manager
	family *totals.Family     // nil: without a total
	local  *localturns.Handle // nil: without LocalFor
}

// New checks cfg and makes a handle. Its error names every field that is bad,
// with value and bound. It sends nothing, and needs no Close where everything is
// released. rdb stays the caller's, to be closed after the handle.
func New(rdb redis.UniversalClient, cfg Config) (*Semaphore, error) {
	var family *totals.Family
	if cfg.Total > 0 {
		family = totals.NewFamily(cfg.family(), cfg.Total, cfg.MaxWaitersTotal)
	}
	m, err := lease.New(rdb, cfg.manager(family), cfg.check()...)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{cfg: cfg, rdb: rdb, m: m, family: family}
	if cfg.LocalFor > 0 {
		s.local = localturns.New(m, cfg.local())
	}
	return s, nil
}

// Acquire takes one permit of key, 1 to 512 bytes of any kind, and waits its
// turn if none is free: first come, first served, across the fleet. The caller
// must Release the lease, also after it was lost.
//
// It costs a round trip, and nothing more while it waits but its share in the
// process's sign of life. Where many goroutines call at once they share round
// trips; a hook of the client then sees pipelines, under a ctx of their own.
//
// ctx bounds the wait: when it ends, Acquire returns at once with ctx's error alone
// where nothing had been sent yet. Where Redis had answered that the caller is
// queued, the error also matches leasehold.ErrBusy; where a call was under way or had
// failed, leasehold.ErrUnavailable. A permit that was granted too late for that is given
// back in the background. ctx is also the parent of the lease's Context: to bound only
// the wait, set Config.MaxWait.
//
// Other errors: leasehold.ErrBusy when Config.MaxWait is over, leasehold.ErrQueueFull,
// leasehold.ErrClosed, leasehold.ErrInvalid for a bad key, and
// leasehold.ErrUnavailable when Redis refuses, when too few of Config.Replicas
// confirmed the grant within Config.ReplicaWait, or when Redis has not answered after 3 s of
// tries, the last of which may run into the client's ReadTimeout. Once queued, a
// place is kept over 10 s without an answer.
func (s *Semaphore) Acquire(ctx context.Context, key string) (*Lease, error) {
	return s.acquire(ctx, "acquire", key, 1, true)
}

// AcquireN is [Semaphore.Acquire] for n permits, all or none: 1 to the limit of key
// that is in force (set by SetLimit, or configured), and at most 1000. A request that waits for many permits is not passed by
// later ones for few. An n that can never be served, also because a limit was lowered
// below it during the wait, ends with leasehold.ErrInvalid; the error names the limit.
func (s *Semaphore) AcquireN(ctx context.Context, key string, n int) (*Lease, error) {
	return s.acquire(ctx, "acquire", key, n, true)
}

// TryAcquire takes one permit of key if it is free now and nobody waits for one;
// else it returns leasehold.ErrBusy, with a *leasehold.BusyError that tells
// how busy. One round trip; with Config.LocalFor none while a caller of this process
// waits. Errors and ctx are as with [Semaphore.Acquire].
func (s *Semaphore) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	return s.acquire(ctx, "try acquire", key, 1, false)
}

// TryAcquireN is [Semaphore.TryAcquire] for n permits, all or none: 1 to the
// limit of key, and at most 1000.
func (s *Semaphore) TryAcquireN(ctx context.Context, key string, n int) (*Lease, error) {
	return s.acquire(ctx, "try acquire", key, n, false)
}

func (s *Semaphore) acquire(ctx context.Context, op, key string, n int, wait bool) (*Lease, error) {
	limit, err := s.cfg.limit(key)
	if err != nil {
		return nil, s.m.Reject(op, key, err)
	}
	share, err := s.cfg.share(key)
	if err != nil {
		return nil, s.m.Reject(op, key, err)
	}
	// Whether n is within the limit in force, only Redis can tell: see SetLimit.
	if n < 1 || n > maxPermits {
		return nil, s.m.Reject(op, key, keys.Invalid("n is %d; want 1 to %d", n, maxPermits))
	}
	a := lease.Attempt{Op: op, Key: key, Permits: n, Limit: limit, Wait: wait}
	if s.cfg.Total > 0 {
		a.Want = share
	}
	l := new(Lease)
	if s.local != nil {
		var err error
		if l.turn, err = s.local.Acquire(ctx, a, &l.held); err != nil {
			return nil, err
		}
		return l, nil
	}
	if _, err := s.m.Acquire(ctx, a, &l.held); err != nil {
		return nil, err
	}
	return l, nil
}

// limit returns what this process configured as the limit of key.
func (c *Config) limit(key string) (int, error) {
	if c.LimitFor == nil {
		return c.Limit, nil
	}
	switch n := c.LimitFor(key); {
	case n == 0:
		return c.Limit, nil
	case n < 0 || n > maxLimit:
		return 0, keys.Bad("LimitFor", "is %d; want 1 to %d, or 0 for Limit", n, maxLimit)
	default:
		return n, nil
	}
}

// share returns what this process configured as the share of key.
func (c *Config) share(key string) (int, error) {
	if c.Total == 0 || c.ShareFor == nil {
		return 1, nil
	}
	switch n := c.ShareFor(key); {
	case n == 0:
		return 1, nil
	case n < 0 || n > maxShare:
		return 0, keys.Bad("ShareFor", "is %d; want 1 to %d, or 0 for 1", n, maxShare)
	default:
		return n, nil
	}
}

// Do runs fn while holding one permit of key, with the lease's Context, and
// releases it when fn returns, panics or calls [runtime.Goexit]. It returns fn's
// error, joined with leasehold.ErrLost if the lease was lost meanwhile; or
// Acquire's error, without having run fn.
func (s *Semaphore) Do(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	return s.DoN(ctx, key, 1, fn)
}

// DoN is [Semaphore.Do] with n permits, as with [Semaphore.AcquireN].
func (s *Semaphore) DoN(ctx context.Context, key string, n int, fn func(ctx context.Context) error) (err error) {
	l, err := s.acquire(ctx, "do", key, n, true)
	if err != nil {
		return err
	}
	defer func() { err = lease.JoinLoss(err, l.Release()) }()
	return fn(l.Context())
}

// Close gives back all that this handle holds, whose Contexts end with
// leasehold.ErrClosed, ends its waits with the same error, and returns when
// its goroutines have ended and Redis has confirmed. Where ctx ends before, it
// returns ctx's error; the rest goes on in the background for as long as a lease
// lasts. Closing again is fine. It does not close the client.
func (s *Semaphore) Close(ctx context.Context) error { return s.m.Close(ctx) }
