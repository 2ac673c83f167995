package mutex

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"
	"github.com/leasehold-go/leasehold/internal/quorum"
	"github.com/leasehold-go/leasehold/internal/several"
)

// Mutex is a handle on a family of locks, one for each key. It is safe for concurrent use.
// Make one handle per process and family. It has goroutines and a subscription only while
// something is held or waited for.
type Mutex struct {
	family  keys.Family
	rdb     redis.UniversalClient
	manager *lease.Manager
	local   *localturns.Handle // nil: neither LocalFor nor KeepFor
	quorum  *quorum.Family     // the servers of NewQuorum, instead of rdb; nil: one server or Cluster
	maxWait time.Duration      // with quorum: Config.MaxWait
}

// New checks cfg and returns a handle. Its error names every bad field, with its value and its
// bound. New sends nothing. The handle needs no Close if everything is unlocked. The caller
// keeps rdb, and closes it after the handle.
func New(rdb redis.UniversalClient, cfg Config) (*Mutex, error) {
	settings := cfg.manager()
	m, err := lease.New(rdb, settings, localturns.Check(cfg.LocalFor, cfg.KeepFor, cfg.TTL)...)
	if err != nil {
		return nil, err
	}
	mu := &Mutex{family: settings.Family, rdb: rdb, manager: m}
	if cfg.LocalFor != 0 || cfg.KeepFor != 0 {
		mu.local = localturns.New(m, localturns.Config{
			LocalFor: cfg.LocalFor, KeepFor: cfg.KeepFor, MaxHold: cfg.MaxHold, MaxWaiters: cfg.MaxWaiters, MaxWait: cfg.MaxWait,
		})
	}
	return mu, nil
}

// Lock takes the lock of key. If another caller holds it, Lock waits for its turn: first come,
// first served, across the fleet. A key is 1 to 512 arbitrary bytes. The caller must Unlock the
// lock, even after it was lost. The lock is not reentrant. ctx bounds the wait, and is the
// parent of the lock's Context. To bound only the wait, set Config.MaxWait.
//
// When ctx ends, Lock returns at once with ctx's error: alone, if nothing had been sent yet;
// joined with leasehold.ErrBusy, if Redis had answered that the caller is queued; joined with
// leasehold.ErrUnavailable, if a call was under way or had failed, or if Redis has fallen
// silent. A lock that is granted too late is given back in the background.
//
// Other errors are leasehold.ErrBusy when MaxWait is over, ErrQueueFull, ErrClosed, a
// *leasehold.RevokedError if the request was revoked, ErrInvalid for a bad key or a ctx that
// descends from the Context of the very lock, and leasehold.ErrUnavailable if Redis refused,
// too few of Config.Replicas confirmed, or Redis did not answer. The last takes about 6 s plus
// the client's ReadTimeout (5 s by default; 8 s if the client has none), and up to 8 s more for
// a handle's first call; a queued request keeps its place until 10 s after a first call failed.
//
// Lock costs one round trip, or none if Config.KeepFor has left the lock in the process, and
// while it waits its share in the calls for all waiters of the process. Many callers at a time share pipelines, which have a ctx of their own.
func (m *Mutex) Lock(ctx context.Context, key string) (*Lock, error) {
	call.NeedCtx(ctx)
	return m.lock(ctx, "lock", key, true)
}

// TryLock takes the lock of key if it is free now and no request waits for it. Otherwise it
// returns leasehold.ErrBusy, with a *leasehold.BusyError that tells how busy the key is. The
// effect of ctx and the other errors are those of [Mutex.Lock]. While Redis is known to be
// away, TryLock returns leasehold.ErrUnavailable within 100 ms.
//
// It costs one round trip. With Config.LocalFor it costs none while a caller of this process
// waits, and with Config.KeepFor none if the lock was left in the process. If a lock that another
// process keeps may be on its way, TryLock waits for it, for at most 250 ms: see docs/keep.md.
func (m *Mutex) TryLock(ctx context.Context, key string) (*Lock, error) {
	call.NeedCtx(ctx)
	return m.lock(ctx, "try lock", key, false)
}

func init() {
	several.Lock = func(handle any, key string) several.Part {
		m := handle.(*Mutex)
		if m.quorum != nil { // no pipeline takes its lock together with others in one step
			why := keys.Invalid("is decided by several servers; multi takes locks of one server or Cluster")
			return several.Part{Err: m.manager.Reject("lock", key, why)}
		}
		part := several.Part{Manager: m.manager, Attempt: attempt("lock", key, true)}
		if m.local != nil {
			part.Keeper = m.local
		}
		return part
	}
}

// attempt returns what is asked of Redis for the lock of key.
func attempt(op, key string, wait bool) lease.Attempt {
	return lease.Attempt{Op: op, Key: key, Permits: 1, Limit: 1, Wait: wait, AwaitsKept: !wait}
}

func (m *Mutex) lock(ctx context.Context, op, key string, wait bool) (*Lock, error) {
	a := attempt(op, key, wait)
	l := new(Lock)
	var err error
	if m.local != nil {
		l.turn, err = m.local.Acquire(ctx, a, &l.held)
	} else {
		_, err = m.manager.Acquire(ctx, a, &l.held)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Do takes the lock of key, as Lock does, and runs fn with the lock's Context and fencing
// token. It unlocks the lock when fn returns, panics or calls [runtime.Goexit]. Do returns
// fn's error, joined with leasehold.ErrLost if the lock was lost meanwhile. If it did not get
// the lock, it returns Lock's error and does not run fn.
func (m *Mutex) Do(ctx context.Context, key string, fn func(ctx context.Context, token uint64) error) error {
	call.NeedCtx(ctx)
	return m.do(ctx, "do", key, true, fn)
}

// TryDo is [Mutex.Do] that does not wait: if the lock is not free, it returns
// leasehold.ErrBusy, as TryLock does, and does not run fn.
func (m *Mutex) TryDo(ctx context.Context, key string, fn func(ctx context.Context, token uint64) error) error {
	call.NeedCtx(ctx)
	return m.do(ctx, "try do", key, false, fn)
}

func (m *Mutex) do(ctx context.Context, op, key string, wait bool, fn func(ctx context.Context, token uint64) error) (err error) {
	l, err := m.lock(ctx, op, key, wait)
	if err != nil {
		return err
	}
	defer func() { err = lease.JoinLoss(err, l.Unlock()) }()
	return fn(l.Context(), l.Token())
}

// Shutdown is [Mutex.Close] for deploys: the holders finish first. Waiting calls and new ones
// get leasehold.ErrClosed at once. Shutdown waits until every lock was given back or lost, and
// renews the locks meanwhile. Then it closes the handle. If ctx ends first, it closes the
// handle as Close does, and returns an error that matches ctx's.
func (m *Mutex) Shutdown(ctx context.Context) error {
	call.NeedCtx(ctx)
	m.local.StopKeeping()
	return m.manager.Shutdown(ctx)
}

// Close gives back all locks that this handle holds and ends its waits. The Contexts of the
// locks and the waiting calls end with leasehold.ErrClosed. Close returns when the goroutines
// of the handle have ended and Redis has confirmed, or the locks have expired. If ctx ends
// first, Close returns ctx's error joined with leasehold.ErrUnavailable, and the rest goes on
// in the background for as long as a lock lasts. A second Close does no harm. Close does not
// close the client.
func (m *Mutex) Close(ctx context.Context) error {
	call.NeedCtx(ctx)
	m.local.StopKeeping()
	return m.manager.Close(ctx)
}

// beside prepares an attempt that is not served from memory: what rests there goes back first if
// it does not wait, and else when it waits.
func (m *Mutex) beside(ctx context.Context, a *lease.Attempt) {
	switch {
	case m.local == nil:
	case a.Wait:
		a.OnWait = func() { m.local.Recall(a.Key) }
	default:
		m.local.GiveBack(ctx, a.Op, a.Key)
	}
}

// Lock is a lock that is held. It is renewed in the background until it is unlocked or lost.
// Its methods are safe for concurrent use. It must not be copied.
type Lock struct {
	held lease.Lease
	turn *localturns.Turn // set with Config.LocalFor; its lease may be held
}

// holding returns what the caller holds: a turn on a lease, or a lease of its own.
func (l *Lock) holding() localturns.Holding {
	if l.turn != nil {
		return l.turn
	}
	return &l.held
}

// Token returns the fencing token. It is greater than that of every earlier holder of this
// key. It is never 0, and is below 2^53 until the year 2255.
func (l *Lock) Token() uint64 { return l.holding().Token() }

// Context returns a child of the ctx of Lock that also ends when the lock is lost or given
// back. Run the work under this Context. If the lock cannot be renewed, the Context ends some
// time before another caller can be granted the lock. At MaxHold the lock is free as soon as
// the Context has ended. If the lock is revoked or its key is deleted, the lock is free at
// once, and the Context ends when the holder learns of it.
//
// [context.Cause] gives the reason: leasehold.ErrLost, leasehold.ErrRevoked,
// leasehold.ErrMaxHold, leasehold.ErrReleased, leasehold.ErrClosed, or the cause of the ctx of
// Lock.
func (l *Lock) Context() context.Context { return l.holding().Context() }

// Unlock gives the lock back. If a request waits for it, it is granted the lock in the same
// step. The caller must call Unlock even if the lock was lost.
//
// Unlock returns nil the first time, and leasehold.ErrReleased after that and after Close.
// leasehold.ErrLost says that the lock had ended before, so the work under it may have run at
// the same time as the work of another holder. leasehold.ErrUnavailable says that Redis could
// not confirm. The lock is then given back in the background.
//
// Unlock takes no ctx, so that it works after a ctx was cancelled. It bounds itself, for any
// number of callers: its call is sent within 5 s, more than once if need be, and waits for an
// answer for the client's ReadTimeout (5 s by default; 8 s if the client has none). While Redis
// is known to be away, it returns leasehold.ErrUnavailable within 100 ms.
//
// It costs one round trip. With Config.LocalFor it costs none if the next turn belongs to this
// process, and with Config.KeepFor none if the lock stays in it. If the process queues again, it gives back and queues in one pipeline. If that
// pipeline fails, Unlock gives back once more by itself, and may take twice as long.
func (l *Lock) Unlock() error { return l.holding().Release("unlock") }

// Extend moves the expiry to ttl from now, and never shortens the lock. ttl is at least 100
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
// that Redis, or as many replicas as Config.Replicas says, did not confirm. The lock then
// lasts as long as before, or longer. If ctx ends during the call, its error is joined with
// leasehold.ErrUnavailable. If ctx had ended before the call, its error is returned alone.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	call.NeedCtx(ctx)
	return l.holding().Extend(ctx, ttl)
}

// ID returns the name of the lock in listings. The lock cannot be released with it.
func (l *Lock) ID() string { return l.holding().ID() }

// Key returns the key as it was passed to Lock.
func (l *Lock) Key() string { return l.holding().Key() }

// Deadline returns the time until which the lock is surely held if no renewal succeeds from
// now on. It is a time of the local monotonic clock, and lies before the end of the lock in
// Redis by at least 10 ms or 2 % of the lock's present term, whichever is more. This term is
// the TTL, or what Extend set. It is at most 2 s at first if another process handed the lock
// over. A renewal moves the Deadline. The monotonic clock may stand still while the machine is
// suspended.
func (l *Lock) Deadline() time.Time { return l.holding().Deadline() }
