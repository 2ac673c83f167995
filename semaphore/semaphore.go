package semaphore

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"
	"github.com/leasehold-go/leasehold/internal/setting"
	"github.com/leasehold-go/leasehold/internal/several"
	"github.com/leasehold-go/leasehold/internal/totals"
)

// Semaphore is a handle on a family of counted semaphores, one for each key. It is safe for
// concurrent use. Make one handle per process and family. It has goroutines and a subscription
// only while something is held or waited for.
type Semaphore struct {
	cfg     Config
	rdb     redis.UniversalClient
	manager *lease.Manager
	family  *totals.Family     // nil: no Total
	local   *localturns.Handle // nil: neither LocalFor nor KeepFor
	setter  setting.Setter
}

// New checks cfg and returns a handle. Its error names every bad field, with its value and its
// bound. New sends nothing. The handle needs no Close if everything is released. The caller
// keeps rdb, and closes it after the handle.
func New(rdb redis.UniversalClient, cfg Config) (*Semaphore, error) {
	var family *totals.Family
	if cfg.Total > 0 {
		family = totals.NewFamily(cfg.family(), cfg.Total, cfg.MaxWaitersTotal)
	}
	m, err := lease.New(rdb, cfg.manager(family), cfg.check()...)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{cfg: cfg, rdb: rdb, manager: m, family: family, setter: setting.Setter{M: m}}
	if cfg.LocalFor != 0 || cfg.KeepFor != 0 {
		s.local = localturns.New(m, localturns.Config{
			LocalFor: cfg.LocalFor, Settable: true, KeepFor: cfg.KeepFor, MaxHold: cfg.MaxHold, MaxWaiters: cfg.MaxWaiters, MaxWait: cfg.MaxWait,
		})
	}
	return s, nil
}

// Acquire takes one permit of key and returns it as a Lease. If none is free it waits for its
// turn: first come, first served, across the fleet. A key is 1 to 512 arbitrary bytes. The
// caller must Release the lease, even after it was lost. ctx bounds the wait, and is the parent
// of the lease's Context. To bound only the wait, set Config.MaxWait.
//
// When ctx ends, Acquire returns at once with ctx's error: alone, if nothing had been sent yet;
// joined with leasehold.ErrBusy, if Redis had answered that the caller is queued; joined with
// leasehold.ErrUnavailable, if a call was under way or had failed, or if Redis has fallen
// silent. A permit that is granted too late is given back in the background.
//
// Other errors are leasehold.ErrBusy when MaxWait is over, ErrQueueFull, ErrClosed, a
// *leasehold.RevokedError if the request was revoked, ErrInvalid for a bad key, a bad result of
// LimitFor or ShareFor, or a ctx from leases beside which the limit or total has no room, and
// leasehold.ErrUnavailable if Redis refused, too few of Config.Replicas confirmed, or Redis did
// not answer. The last takes about 6 s plus the client's ReadTimeout (5 s by default; 8 s if the
// client has none), and up to 8 s more for a handle's first call; a queued request keeps its
// place until 10 s after a first call failed.
//
// Acquire costs one round trip, or none if Config.KeepFor has left a permit in the process, and
// while it waits its share in the calls for all waiters of the process. Many callers at a time share pipelines, which have a ctx of their own.
func (s *Semaphore) Acquire(ctx context.Context, key string) (*Lease, error) {
	call.NeedCtx(ctx)
	return s.acquire(ctx, "acquire", key, 1, true)
}

// AcquireN is like [Semaphore.Acquire] but takes n permits, all or none. n is 1 to the limit
// of key that is in force (set by SetLimit, or configured), and at most 1000. Later requests
// for few permits do not overtake a request that waits for many. If n can never be served,
// AcquireN returns leasehold.ErrInvalid, with the limit in its text. This also happens if the
// limit is lowered below n during the wait. In a family with a Total, n is also at most the
// total.
func (s *Semaphore) AcquireN(ctx context.Context, key string, n int) (*Lease, error) {
	call.NeedCtx(ctx)
	return s.acquire(ctx, "acquire", key, n, true)
}

// TryAcquire takes one permit of key if one is free now and no request waits for one.
// Otherwise it returns leasehold.ErrBusy, with a *leasehold.BusyError that tells how busy the
// key is. The effect of ctx and the other errors are those of [Semaphore.Acquire]. While Redis
// is known to be away, TryAcquire returns leasehold.ErrUnavailable within 100 ms.
//
// It costs one round trip. With Config.LocalFor it costs none while a caller of this process
// waits, and with Config.KeepFor none if a permit was left in the process. If permits that other
// processes keep may be on their way, TryAcquire waits for them, for at most 250 ms: see
// docs/keep.md.
func (s *Semaphore) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	call.NeedCtx(ctx)
	return s.acquire(ctx, "try acquire", key, 1, false)
}

// TryAcquireN is like [Semaphore.TryAcquire] but takes n permits, all or none. n is 1 to the
// limit of key, and at most 1000.
func (s *Semaphore) TryAcquireN(ctx context.Context, key string, n int) (*Lease, error) {
	call.NeedCtx(ctx)
	return s.acquire(ctx, "try acquire", key, n, false)
}

func init() {
	several.Permits = func(handle any, key string, n int) several.Part {
		s := handle.(*Semaphore)
		a, err := s.attempt("acquire", key, n, true)
		part := several.Part{Manager: s.manager, Attempt: a, Err: err}
		if s.local != nil {
			part.Keeper = s.local
		}
		return part
	}
}

// attempt returns what is asked of Redis for n permits.
func (s *Semaphore) attempt(op, key string, n int, wait bool) (a lease.Attempt, err error) {
	a = lease.Attempt{Op: op, Key: key, Permits: n, Wait: wait, AwaitsKept: !wait}
	if a.Limit, err = s.cfg.limit(key); err == nil && s.cfg.Total > 0 {
		a.Want, err = s.cfg.share(key)
	}
	if err == nil && (n < 1 || n > maxPermits) {
		err = keys.Invalid("n is %d; want 1 to %d", n, maxPermits)
	}
	if err != nil {
		err = s.manager.Reject(op, key, err)
	}
	return a, err
}

func (s *Semaphore) acquire(ctx context.Context, op, key string, n int, wait bool) (*Lease, error) {
	a, err := s.attempt(op, key, n, wait)
	if err != nil {
		return nil, err
	}
	l := new(Lease)
	if s.local != nil {
		l.turn, err = s.local.Acquire(ctx, a, &l.held)
	} else {
		_, err = s.manager.Acquire(ctx, a, &l.held)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// limit returns the limit of key that this process configured.
func (c *Config) limit(key string) (int, error) {
	return c.of(key, c.LimitFor, c.Limit, maxLimit, "LimitFor", "Limit")
}

// share returns the share of key that this process configured.
func (c *Config) share(key string) (int, error) {
	return c.of(key, c.ShareFor, 1, maxShare, "ShareFor", "1")
}

// of returns what the function of a field says of key, or usual.
func (c *Config) of(key string, says func(key string) int, usual, most int, field, usually string) (int, error) {
	if says == nil {
		return usual, nil
	}
	n := says(key)
	return cmp.Or(n, usual), keys.Unless(n >= 0 && n <= most, field, "is %d; want 1 to %d, or 0 for %s", n, most, usually)
}

// Do takes one permit of key, as Acquire does, and runs fn with the lease's Context. It
// releases the permit when fn returns, panics or calls [runtime.Goexit]. Do returns fn's
// error, joined with leasehold.ErrLost if the lease was lost meanwhile. If it got no permit,
// it returns Acquire's error and does not run fn.
func (s *Semaphore) Do(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	call.NeedCtx(ctx)
	return s.do(ctx, "do", key, 1, true, fn)
}

// DoN is like [Semaphore.Do] but takes n permits, as [Semaphore.AcquireN] does.
func (s *Semaphore) DoN(ctx context.Context, key string, n int, fn func(ctx context.Context) error) error {
	call.NeedCtx(ctx)
	return s.do(ctx, "do", key, n, true, fn)
}

// TryDo is [Semaphore.Do] that does not wait: if no permit is free, it returns
// leasehold.ErrBusy, as TryAcquire does, and does not run fn.
func (s *Semaphore) TryDo(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	call.NeedCtx(ctx)
	return s.do(ctx, "try do", key, 1, false, fn)
}

func (s *Semaphore) do(ctx context.Context, op, key string, n int, wait bool, fn func(ctx context.Context) error) (err error) {
	l, err := s.acquire(ctx, op, key, n, wait)
	if err != nil {
		return err
	}
	defer func() { err = lease.JoinLoss(err, l.Release()) }()
	return fn(l.Context())
}

// Shutdown is [Semaphore.Close] for deploys: the holders finish first. Waiting calls and new
// ones get leasehold.ErrClosed at once. Shutdown waits until every lease was given back or
// lost, and renews the leases meanwhile. Then it closes the handle. If ctx ends first, it
// closes the handle as Close does, and returns an error that matches ctx's.
func (s *Semaphore) Shutdown(ctx context.Context) error {
	call.NeedCtx(ctx)
	s.local.StopKeeping()
	return s.manager.Shutdown(ctx)
}

// Close gives back everything that this handle holds and ends its waits. The Contexts of the
// leases and the waiting calls end with leasehold.ErrClosed. Close returns when the goroutines
// of the handle have ended and Redis has confirmed, or the leases have expired. If ctx ends
// first, Close returns ctx's error joined with leasehold.ErrUnavailable, and the rest goes on
// in the background for as long as a lease lasts. A second Close does no harm. Close does not
// close the client.
func (s *Semaphore) Close(ctx context.Context) error {
	call.NeedCtx(ctx)
	s.local.StopKeeping()
	return s.manager.Close(ctx)
}

// Lease is a number of permits that are held. It is renewed in the background until it is
// released or lost. Its methods are safe for concurrent use. It must not be copied.
type Lease struct {
	held lease.Lease
	turn *localturns.Turn // set with Config.LocalFor; its lease may be held
}

// holding returns what the caller holds: a turn on a lease, or a lease of its own.
func (l *Lease) holding() localturns.Holding {
	if l.turn != nil {
		return l.turn
	}
	return &l.held
}

// Context returns a child of the ctx of Acquire that also ends when the lease is lost or given
// back. Run the work under this Context. If the lease cannot be renewed, the Context ends some
// time before another caller can be granted the permits. At MaxHold the permits are free as
// soon as the Context has ended. If the lease is revoked or its key is deleted, the permits are
// free at once, and the Context ends when the holder learns of it.
//
// [context.Cause] gives the reason: leasehold.ErrLost, leasehold.ErrRevoked,
// leasehold.ErrMaxHold, leasehold.ErrReleased, leasehold.ErrClosed, or the cause of the ctx of
// Acquire.
func (l *Lease) Context() context.Context { return l.holding().Context() }

// Release gives the permits back. If a request waits for them, it is granted them in the same
// step. The caller must call Release even if the lease was lost.
//
// Release returns nil the first time, and leasehold.ErrReleased after that and after Close.
// leasehold.ErrLost says that the lease had ended before, so the work under it may have run at
// the same time as the work of other holders. leasehold.ErrUnavailable says that Redis could
// not confirm. The permits are then given back in the background.
//
// Release takes no ctx, so that it works after a ctx was cancelled. It bounds itself, for any
// number of callers: its call is sent within 5 s, more than once if need be, and waits for an
// answer for the client's ReadTimeout (5 s by default; 8 s if the client has none). While Redis
// is known to be away, it returns leasehold.ErrUnavailable within 100 ms.
//
// It costs one round trip. With Config.LocalFor it costs none if the next turn belongs to this
// process, and with Config.KeepFor none if the permits stay in it. If the process queues again, it gives back and queues in one pipeline. If that
// pipeline fails, Release gives back once more by itself, and may take twice as long.
func (l *Lease) Release() error { return l.holding().Release("release") }

// Extend moves the expiry to ttl from now, and never shortens the lease. ttl is at least 100
// ms. Use Extend before work that must survive without Redis for longer than the configured
// TTL. It costs one round trip.
//
// If ctx ends, Extend returns at once. If Redis does not answer, the last try begins about a
// second after the call, and Extend returns within about 4 s plus the client's ReadTimeout (5
// s by default; 8 s if the client has none). With Config.Replicas it may also take the time to
// wait for replicas.
//
// Its errors are leasehold.ErrInvalid if ttl is too short, leasehold.ErrLost,
// leasehold.ErrReleased, leasehold.ErrUnavailable and ctx's own. leasehold.ErrUnavailable says
// that Redis, or as many replicas as Config.Replicas says, did not confirm. The lease then
// lasts as long as before, or longer. If ctx ends during the call, its error is joined with
// leasehold.ErrUnavailable. If ctx had ended before the call, its error is returned alone.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	call.NeedCtx(ctx)
	return l.holding().Extend(ctx, ttl)
}

// ID returns the name of the lease in listings. The lease cannot be released with it.
func (l *Lease) ID() string { return l.holding().ID() }

// Key returns the key as it was passed to Acquire.
func (l *Lease) Key() string { return l.holding().Key() }

// Deadline returns the time until which the lease is surely held if no renewal succeeds from
// now on. It is a time of the local monotonic clock, and lies before the end of the lease in
// Redis by at least 10 ms or 2 % of the lease's present term, whichever is more. This term is
// the TTL, or what Extend set. It is at most 2 s at first if another process handed the permits
// over. A renewal moves the Deadline. The monotonic clock may stand still while the machine is
// suspended.
func (l *Lease) Deadline() time.Time { return l.holding().Deadline() }
