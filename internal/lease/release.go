package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// fail is the error of an operation on a lease that is over. Called with the
// lock, or once l.why can no longer change.
func (l *Lease) fail(op string) error { return l.m.fail(op, l.req.Label, l.why, l.cause) }

// Release gives the lease back; op is how the package calls that.
func (l *Lease) Release(op string) error {
	m := l.m
	// Counted in before the lease is taken from those that Close gives back: it
	// waits for this one's answer instead.
	m.count()
	defer m.done()
	switch l.end(leasehold.ErrReleased) {
	case released:
		return m.fail(op, l.req.Label, leasehold.ErrReleased)
	case lost:
		m.giveBackLater(l.newGiveBack())
		return l.fail(op)
	}
	if m.eng.Bounded() {
		if errs := l.leave(); errs != nil {
			return m.fail(op, l.req.Label, errs...)
		}
		return nil
	}
	outcome := make(chan []error, 1)
	m.spawn(func() { outcome <- l.leave() })
	bound := time.NewTimer(2 * engine.CallBound)
	defer bound.Stop()
	select {
	case errs := <-outcome:
		if errs == nil {
			return nil
		}
		return m.fail(op, l.req.Label, errs...)
	case <-bound.C:
		m.giveBackLater(l.newGiveBack())
		return m.fail(op, l.req.Label, leasehold.ErrUnavailable, errSlow)
	}
}

var errSlow = fmt.Errorf("no answer within %v", 2*engine.CallBound)

// end takes the lease out of its holder's hands, once, and returns what it was
// before. Only who gets "held" or "lost" gives it back.
func (l *Lease) end(why error) condition {
	l.mu.Lock()
	if l.cond == held && !time.Now().Before(l.deadline) {
		l.lose(leasehold.ErrLost, l.failure) // before the loop got to it
	}
	was := l.cond
	l.cond = released
	if was == held {
		l.why = why
		if l.cancel != nil {
			l.cancel(l.fail("hold"))
		}
	}
	l.mu.Unlock()
	if was != released {
		l.m.loop.Remove(&l.entry)
		l.m.mu.Lock()
		delete(l.m.leases, l)
		l.m.mu.Unlock()
	}
	return was
}

// abandon gives the lease back in the background, for Close.
func (l *Lease) abandon(why error) {
	if l.end(why) != released {
		l.m.giveBackLater(l.newGiveBack())
	}
}

// leave sends the leave until it is answered, a few times, and says what is wrong
// with the lease, if anything.
func (l *Lease) leave() []error {
	m := l.m
	ctx := m.bound.ctx()
	resent := false
	for n := 1; ; n++ {
		sent := time.Now()
		v, err := m.eng.Do(ctx, l.req.Leave("", l.stray))
		var r engine.LeaveReply
		if err == nil {
			r, err = engine.ParseLeave(v)
		}
		if err == nil {
			m.deliver(r.Grants, sent)
			if r.More {
				m.giveBackLater(l.newGiveBack()) // nothing is left to give back, but to hand on
			}
			// The deadline had not passed when its holder let go. That the server
			// knows no lease says that it was lost before only if this was the
			// one call, and was answered before the lease can have expired.
			if r.Held || resent || !time.Now().Before(l.deadline) {
				return nil
			}
			return []error{leasehold.ErrLost, errGone}
		}
		outcome := engine.Classify(err)
		if outcome == engine.Unknown {
			resent = true
			m.askSoon(l.req.Resource) // grants to our own waiters may have been in the reply
		}
		if outcome == engine.Refused || n == tries || ctx.Err() != nil {
			m.giveBackLater(l.newGiveBack())
			return []error{leasehold.ErrUnavailable, err}
		}
		time.Sleep(backoff(n))
	}
}

// Extend pushes the expiry to ttl from now, and never shortens it.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < MinTTL {
		return l.m.fail("extend", l.req.Label, keys.Invalid("ttl is %v; want at least %v", ttl, MinTTL))
	}
	if err := l.ended("extend"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return l.m.fail("extend", l.req.Label, err, leasehold.ErrUnavailable)
	}
	if !l.maxEnd.IsZero() {
		ttl = max(MinTTL, within(ttl, time.Until(l.maxEnd)))
	}
	m := l.m
	outcome := make(chan error, 1)
	m.spawn(func() {
		for n := 1; ; n++ {
			sent := time.Now()
			v, err := m.eng.Do(ctx, l.req.Renew("", ttl))
			refused := err != nil && engine.Classify(err) == engine.Refused
			if err == nil || refused {
				l.renewed(sent, v, err)
			}
			if err == nil || refused || n == tries || ctx.Err() != nil {
				outcome <- err
				return
			}
			time.Sleep(backoff(n))
		}
	})
	var errs []error
	select {
	case err := <-outcome:
		switch {
		case err == nil:
			return l.ended("extend")
		case wrongType(err):
			errs = []error{leasehold.ErrLost, err}
		default:
			errs = []error{ctx.Err(), leasehold.ErrUnavailable, err}
		}
	case <-ctx.Done():
		errs = []error{ctx.Err(), leasehold.ErrUnavailable}
	}
	return m.fail("extend", l.req.Label, errs...)
}

// ended is the error of an operation on a lease that is over, nil while it is
// held.
func (l *Lease) ended(op string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.cond {
	case lost:
		return l.fail(op)
	case released:
		return l.m.fail(op, l.req.Label, leasehold.ErrReleased)
	}
	return nil
}
