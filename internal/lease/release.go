package lease

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// Release gives the lease back. op is the package's name for that.
func (l *Lease) Release(op string) error { return l.release(op, nil, false) }

// ReleaseTogether is Release together with the other calls of a batch. Each lease of the batch
// is released by a goroutine of its own.
func (l *Lease) ReleaseTogether(op string, seat *call.Seat) error {
	defer seat.Leave()
	return l.release(op, seat, false)
}

// Complete is Release by leaves that also store a result, if the lease is still held there. A nil
// error says that the result is stored. If Close ended the lease, the error matches
// leasehold.ErrClosed.
func (l *Lease) Complete(op string) error { return l.release(op, nil, true) }

// release sends the leave by its seat, if it has one.
func (l *Lease) release(op string, seat *call.Seat, completes bool) error {
	l.acquired(op)
	m := l.a.m
	defer m.events.Observed()
	defer m.done()
	if err := l.end(op, completes); err != nil {
		return err
	}
	if err := m.client.Reachable(context.Background(), l.a.res.FirstKey()); err != nil {
		l.a.notLeft(err)
	} else {
		l.a.m.mu.Lock()
		c := l.a.leaveCall()
		l.a.m.mu.Unlock()
		do := m.client.Do // while the server answers, the leave waits in its queue
		if seat != nil {
			do = func(ctx context.Context, c *call.Call) ([]int64, error) { return seat.Do(ctx, m.single, c) }
		}
		ints, err := []int64(nil), errNoAnswer // stays if a hook ends the goroutine
		func() {
			defer func() { l.a.onLeft(c, ints, err) }()
			ints, err = do(context.Background(), c)
		}()
	}
	return l.a.awaitLeave(op)
}

// end ends the lease for its holder and counts an operation, which is counted before the lease
// is taken off the list that Close works on, so that Close waits for the leave. An error says
// why the lease was over already; the caller then sends no leave. Only the leaves of a lease that its
// holder has not lost may complete its run.
func (l *Lease) end(op string, completes bool) error {
	a := l.a
	m := a.m
	was, told := life.Entering, false
	defer func() {
		if !told && was == life.Holding { // a method of the holder's ctx ended the goroutine
			a.notLeft(errNoAnswer)
		}
	}()
	a.step(nil, func(now life.Moment) (fx life.Effect) {
		m.running++
		if was, fx = a.life.Release(now, m.closed); completes && was == life.Holding {
			a.life.Complete = true
		}
		return fx
	})
	told = true
	switch was {
	case life.Holding:
		if !a.keeps { // else each turn is added
			m.holds.add(m.now() - a.grantAt)
		}
		return nil
	case life.Lost:
		_ = l.Ended()
		a.tellStale()
		return a.fail(op)
	}
	if completes {
		return a.fail(op)
	}
	return m.fail(op, a.res.Label(), leasehold.ErrReleased)
}

// notLeft notes that no leave was sent, because the server is known to be away. The schedule sends it.
func (a *attempt) notLeft(err error) {
	r := protocol.Result{Outcome: life.Outcome{Code: life.NotSent, Away: true}, Err: err}
	a.step(&r, func(now life.Moment) life.Effect { return a.life.OnLeave(&r.Outcome, now) })
}

// awaitLeave waits until the leave is answered, or has had no answer for too long, and returns
// the error of the release. The schedule repeats the leave meanwhile.
func (a *attempt) awaitLeave(op string) error {
	m := a.m
	var bound *time.Timer
	for {
		m.mu.Lock()
		told, r := a.life.Told, a.heard
		m.mu.Unlock()
		if told != life.WaitOn {
			return a.releaseError(op, told, r)
		}
		wake := a.wakes()
		if bound == nil {
			bound = time.NewTimer(call.Bound - time.Since(m.time(a.life.Since)))
			defer bound.Stop()
		}
		select {
		case <-wake:
		case <-bound.C:
			return a.releaseError(op, life.TellNoAnswer, nil)
		}
	}
}

// releaseError returns the error of a release that is told v.
func (a *attempt) releaseError(op string, v life.Verdict, r *protocol.Result) error {
	m := a.m
	var why, cause error
	switch v {
	case life.TellDone:
		return nil
	case life.TellLost:
		why, cause = leasehold.ErrLost, errGone
	case life.TellRevoked:
		why = &leasehold.RevokedError{Reason: r.Reason}
	default:
		why, cause = leasehold.ErrUnavailable, errNoAnswer
		if r != nil && r.Err != nil {
			cause = r.Err
		}
	}
	if errors.Is(why, leasehold.ErrLost) && !a.life.Idle { // it is given back, so that changes no more
		a.tellEnded(why, false)
		a.tellStale()
	}
	return m.fail(op, a.res.Label(), why, cause)
}
