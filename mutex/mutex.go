package mutex

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"
)

// Mutex is a handle on a family of locks, one a key. It is safe for concurrent
// use, and meant to be made once a process and family. It has goroutines and a
// subscription only while something is held or waited for.
type Mutex struct {
	family keys.Family
	rdb    redis.UniversalClient
	m      *lease.Manager
	local  *localturns.Handle // nil: without LocalFor
}

// New checks cfg and makes a handle. Its error names every field that is bad,
// with value and bound. It sends nothing, and needs no Close where everything is
// unlocked. rdb stays the caller's, to be closed after the handle.
func New(rdb redis.UniversalClient, cfg Config) (*Mutex, error) {
	settings := cfg.manager()
	m, err := lease.New(rdb, settings, localturns.Check(cfg.LocalFor, cfg.TTL)...)
	if err != nil {
		return nil, err
	}
	mu := &Mutex{family: settings.Family, rdb: rdb, m: m}
	if cfg.LocalFor > 0 {
		mu.local = localturns.New(m, cfg.local())
	}
	return mu, nil
}

// Lock takes the lock of key, 1 to 512 bytes of any kind, and waits its turn if
// another holds it: first come, first served, across the fleet. The caller must
// Unlock it, also after it was lost. It is not reentrant: a second Lock of the
// same goroutine waits like any other.
//
// It costs a round trip, and nothing more while it waits but its share in the
// process's sign of life. Where many goroutines call at once they share round
// trips; a hook of the client then sees pipelines, under a ctx of their own.
//
// ctx bounds the wait: when it ends, Lock returns at once with ctx's error alone
// where nothing had been sent yet. Where Redis had answered that the caller is
// queued, the error also matches leasehold.ErrBusy; where a call was under way or had
// failed, leasehold.ErrUnavailable. A lock that was granted too late for that is given
// back in the background. ctx is also the parent of the lock's Context: to bound only
// the wait, set Config.MaxWait.
//
// Other errors: leasehold.ErrBusy when Config.MaxWait is over, leasehold.ErrQueueFull,
// leasehold.ErrClosed, leasehold.ErrInvalid for a bad key, and
// leasehold.ErrUnavailable when Redis refuses, when too few of Config.Replicas
// confirmed the grant within Config.ReplicaWait, or when Redis has not answered after 3 s of
// tries, the last of which may run into the client's ReadTimeout. Once queued, a
// place is kept over 10 s without an answer.
func (m *Mutex) Lock(ctx context.Context, key string) (*Lock, error) {
	return m.lock(ctx, "lock", key, true)
}

// TryLock takes the lock of key if it is free now and nobody waits for it; else
// it returns leasehold.ErrBusy, with a *leasehold.BusyError that tells how
// busy. One round trip; with Config.LocalFor none while a caller of this process waits.
// Errors and ctx are as with [Mutex.Lock].
func (m *Mutex) TryLock(ctx context.Context, key string) (*Lock, error) {
	return m.lock(ctx, "try lock", key, false)
}

func (m *Mutex) lock(ctx context.Context, op, key string, wait bool) (*Lock, error) {
	a := lease.Attempt{Op: op, Key: key, Permits: 1, Limit: 1, Wait: wait}
	l := new(Lock)
	if m.local != nil {
		var err error
		if l.turn, err = m.local.Acquire(ctx, a, &l.held); err != nil {
			return nil, err
		}
		return l, nil
	}
	if _, err := m.m.Acquire(ctx, a, &l.held); err != nil {
		return nil, err
	}
	return l, nil
}

// Do runs fn while holding the lock of key, with the lock's Context and fencing
// token, and unlocks it when fn returns, panics or calls [runtime.Goexit]. It
// returns fn's error, joined with leasehold.ErrLost if the lock was lost
// meanwhile; or Lock's error, without having run fn.
func (m *Mutex) Do(ctx context.Context, key string, fn func(ctx context.Context, token uint64) error) (err error) {
	l, err := m.lock(ctx, "do", key, true)
	if err != nil {
		return err
	}
	defer func() { err = lease.JoinLoss(err, l.Unlock()) }()
	return fn(l.Context(), l.Token())
}

// Close gives back all locks that this handle holds, whose Contexts end with
// leasehold.ErrClosed, ends its waits with the same error, and returns when
// its goroutines have ended and Redis has confirmed. Where ctx ends before, it
// returns ctx's error; the rest goes on in the background for as long as a lock
// lasts. Closing again is fine. It does not close the client.
func (m *Mutex) Close(ctx context.Context) error { return m.m.Close(ctx) }
