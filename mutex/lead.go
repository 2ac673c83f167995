package mutex

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/lease"
)

const (
	// A leader's fn starts at most once in leadEvery. One that returned at once would otherwise
	// take and give back the lock thousands of times per second.
	leadEvery = time.Second
	// leastStandPause and mostStandPause bound the pause after an attempt that failed.
	leastStandPause = 50 * time.Millisecond
	mostStandPause  = 2 * time.Second
)

// Lead runs fn each time this process becomes the leader of key, until ctx ends. The leader is
// the holder of the lock of key. Lead waits for the lock, for as long as it takes:
// Config.MaxWait does not apply. It runs fn with the lock's Context and token. When fn has
// returned, it gives the lock back and stands again, behind those that wait. fn should lead
// until its ctx ends. fn starts at most once a second.
//
// Lead returns
//
//   - ctx's error when ctx ends, after fn has returned and the lock was given back, so that the
//     next process leads at once;
//   - fn's error, if fn failed while it led. If the lock was lost, fn's error is no failure, and
//     Lead stands again;
//   - leasehold.ErrClosed when the handle was closed;
//   - leasehold.ErrInvalid for a bad key, and leasehold.ErrUnavailable with a cause that only a
//     person ends: missing rights, an old server, a foreign value in the place of the key.
//
// While Redis is out of reach, the queue is full, or after its place was revoked, Lead tries
// again after 50 ms to 2 s. A panic of fn gives the lock back, and goes on to the caller.
// LocalFor has no effect. [Mutex.Inspect] tells who leads, by Config.Label. Lead costs what Lock
// and Unlock cost, each time that it leads.
func (m *Mutex) Lead(ctx context.Context, key string, fn func(ctx context.Context, token uint64) error) error {
	call.NeedCtx(ctx)
	const op = "lead"
	a := attempt(op, key, true)
	a.NoMaxWait = true
	m.beside(ctx, &a)
	pause := leastStandPause
	for {
		l := new(lease.Lease)
		_, err := m.manager.Acquire(ctx, a, l)
		began := time.Now()
		rest := time.Duration(0)
		switch {
		case err == nil:
			if err, over := m.lead(ctx, op, key, l, fn); over {
				return err
			}
			pause = leastStandPause
			rest = leadEvery - time.Since(began)
		case errors.Is(err, ctx.Err()), errors.Is(err, leasehold.ErrClosed), errors.Is(err, leasehold.ErrInvalid), call.Lasting(err):
			return err
		default:
			rest = pause + rand.N(pause)
			pause = min(2*pause, mostStandPause/2)
		}
		if rest <= 0 {
			continue
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return m.manager.Reject(op, key, ctx.Err())
		case <-m.manager.Closing():
			timer.Stop()
		}
	}
}

// lead runs fn under l and gives l back. over says that Lead returns err.
func (m *Mutex) lead(ctx context.Context, op, key string, l *lease.Lease, fn func(ctx context.Context, token uint64) error) (err error, over bool) {
	returned := false
	defer func() {
		if !returned {
			_ = l.Release(op) // a panic or Goexit
		}
	}()
	failed := fn(l.Context(), l.Token())
	returned = true
	ended := l.Ended()
	left := l.Release(op)
	switch {
	case m.manager.Closed():
		return m.manager.Reject(op, key, leasehold.ErrClosed), true
	case ctx.Err() != nil:
		return m.manager.Reject(op, key, ctx.Err()), true
	case ended != nil || errors.Is(left, leasehold.ErrLost):
		return nil, false // what fn returned is due to the loss
	}
	return failed, failed != nil
}
