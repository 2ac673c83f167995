package mutex

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

const (
	minKeep    = time.Second      // the shortest time for which the completion of a slot is remembered
	lookWithin = 10 * time.Second // how long a look at a slot may take
	lookTries  = 3 * time.Second  // how long a look that waits is begun anew where no majority answers, as a Lock is
)

// DoOnce runs fn under the lock of key, unless slot was completed before. It is for jobs that
// several hosts start at about the same time. A lock alone runs such a job twice if the first
// run ends before the second host's clock strikes. slot names the run, such as "2026-11-23" or
// a migration: 1 to 512 bytes. keep is how long its completion is remembered, at least 1 s. It
// must be longer than the time by which the hosts' clocks can differ.
//
// Callers wait while another one runs fn, as in [Mutex.Lock]. ran says whether fn ran here.
//
//   - (true, nil): fn ran, and the slot is complete.
//   - (false, nil): the slot was complete. fn did not run.
//   - fn's error, a panic or Goexit leaves the slot open; the next caller runs fn. If the lock
//     was lost, the error matches leasehold.ErrLost, after Close leasehold.ErrClosed.
//   - (true, leasehold.ErrUnavailable): fn ran, and the slot may be complete, or become so.
//   - (false, err): as in Lock, and leasehold.ErrInvalid for a bad slot or keep.
//
// So fn runs at least once until it succeeds, and is completed at most once. It costs one round
// trip if the slot is complete, and two for a run, or three after a wait. LocalFor has no
// effect. Only <prefix>:mtx:{<name>:<key>}:done:<slot> stays in Redis, for keep.
func (m *Mutex) DoOnce(ctx context.Context, key, slot string, keep time.Duration, fn func(ctx context.Context, token uint64) error) (ran bool, err error) {
	call.NeedCtx(ctx)
	return m.once(ctx, "do once", run{key, slot, keep, fn}, true)
}

// TryDoOnce is [Mutex.DoOnce] that does not wait. While another caller runs fn, it returns
// leasehold.ErrBusy.
func (m *Mutex) TryDoOnce(ctx context.Context, key, slot string, keep time.Duration, fn func(ctx context.Context, token uint64) error) (ran bool, err error) {
	call.NeedCtx(ctx)
	return m.once(ctx, "try do once", run{key, slot, keep, fn}, false)
}

// A run is one call of DoOnce.
type run struct {
	key, slot string
	keep      time.Duration
	fn        func(ctx context.Context, token uint64) error
}

var (
	errForgotten = errors.New("no answer came within keep, so it is not known whether the slot was completed")
	errMinority  = errors.New("the slot may be complete all the same, as a server that still had the lock says")
)

func (m *Mutex) once(ctx context.Context, op string, r run, wait bool) (ran bool, err error) {
	once, err := m.slot(r)
	if err != nil {
		return false, m.manager.Reject(op, r.key, err)
	}
	if m.quorum != nil { // its enters do not look
		within, tries := lookWithin, time.Duration(0)
		if wait {
			within, tries = min(within, cmp.Or(m.maxWait, within)), lookTries
		}
		began := time.Now()
		complete, err := m.isComplete(ctx, op, r.key, once, within, tries)
		if complete || errors.Is(err, leasehold.ErrUnavailable) {
			m.manager.ReportLook(ctx, began, err)
		}
		if complete || err != nil {
			return false, err
		}
	}
	a := attempt(op, r.key, wait)
	a.Want = once
	m.beside(ctx, &a)
	l := new(lease.Lease)
	complete, err := m.manager.Acquire(ctx, a, l)
	if err != nil || complete != nil {
		return false, err
	}
	succeeded := false
	defer func() {
		switch {
		case succeeded:
			began, held := time.Now(), l.Ended() == nil
			err = l.Complete(op)
			switch lost := errors.Is(err, leasehold.ErrLost); {
			case lost && time.Since(began) >= r.keep:
				// A copy of the leave may have completed the slot. What it stored, by which the
				// next copy knows it, is forgotten by now.
				err = m.manager.Reject(op, r.key, leasehold.ErrUnavailable, errForgotten)
			case lost && held && m.quorum != nil:
				// A look believes any server, so also one that still had the lock and stores the completion.
				err = errors.Join(err, m.manager.Reject(op, r.key, leasehold.ErrUnavailable, errMinority))
			}
		case ran: // also after a panic or Goexit
			ended := l.Ended()
			if err = lease.JoinLoss(err, l.Release(op)); errors.Is(ended, leasehold.ErrClosed) {
				err = errors.Join(err, ended)
			}
		default:
			l.GiveBack()
		}
	}()
	// A grant by the reply to the enter says that the slot is open: that call has looked, and
	// only a holder completes it. Any other grant may be newer than the look. The former holder
	// may have completed the slot in the very call that granted.
	if !l.ByEnter() || m.quorum != nil {
		if complete, err := m.isComplete(ctx, op, r.key, once, lookWithin, lookTries); err != nil || complete {
			return false, err
		}
	}
	ran = true
	err = r.fn(l.Context(), l.Token())
	succeeded = err == nil
	return ran, err
}

// slot checks the arguments of a run.
func (m *Mutex) slot(r run) (*permits.Once, error) {
	resource, err := m.family.Resource(r.key)
	switch n := len(r.slot); {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, keys.Invalid("slot is empty; want 1 to %d bytes", keys.MaxLen)
	case n > keys.MaxLen:
		return nil, keys.Invalid("slot has %d bytes; want 1 to %d", n, keys.MaxLen)
	case r.keep < minKeep:
		return nil, keys.Invalid("keep is %v; want at least %v", r.keep, minKeep)
	case r.fn == nil:
		return nil, keys.Invalid("fn is nil; want a function")
	}
	return permits.NewOnce(resource, keys.Shown(r.slot, m.family.Hash), min(r.keep, forever)), nil
}

// isComplete asks Redis whether a run is complete, for as long as within. Several servers are asked again for tries.
func (m *Mutex) isComplete(ctx context.Context, op, key string, run *permits.Once, within, tries time.Duration) (bool, error) {
	complete := false // the look may go on after Run has returned an error
	err := m.manager.Run(ctx, op, key, within, func(ctx context.Context, r protocol.Resource) (err error) {
		if m.quorum != nil {
			for began := time.Now(); ; {
				complete, err = m.quorum.IsComplete(ctx, run, within/2)
				m.manager.Reached(r.FirstKey(), err)
				if err == nil || time.Since(began) > tries || ctx.Err() != nil || call.Lasting(err) {
					return err
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		reply, err := m.manager.Client().Do(ctx, run.IsComplete())
		if err == nil && (len(reply) != 1 || reply[0] < 0 || reply[0] > 1) {
			err = call.Malformed("is complete", reply)
		}
		complete = err == nil && reply[0] == 1
		return err
	})
	if err != nil {
		return false, err
	}
	return complete, nil
}
