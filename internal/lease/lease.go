package lease

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// A Lease is one thing held: permits of a key, or a lock. Acquire fills it in in place, so
// that the types of the packages embed it without another allocation.
type Lease struct {
	a      *attempt
	parent nested.Hold // of Context; By differs from the address of a copy
}

// check panics if the lease is held already.
func (l *Lease) check() {
	if l.a != nil {
		panic("leasehold: a lease was copied, or acquired into twice")
	}
}

// acquired panics if l is the zero value, or a copy: the end of a lease ends the Context that it
// made, and not one that a copy made.
func (l *Lease) acquired(op string) {
	if l.parent.By != l {
		panic("leasehold: " + op + " of a lease that was not acquired, or of a copy of one: pass the pointer on")
	}
}

// begin makes l the lease of the caller's granted attempt. Called with the manager's lock.
func (l *Lease) begin(c *caller, now life.Moment) {
	a, ctx := c.at, c.ctx
	if c.of.Parent != nil {
		ctx = c.of.Parent
	}
	a.lastState = nil // only a waiter tells of it
	a.life.Take(now)
	l.a, l.parent = a, nested.Hold{Calm: nested.Calm{Context: ctx}, By: l}
}

// GiveBack gives the lease back in the background.
func (l *Lease) GiveBack() {
	l.a.step(nil, func(now life.Moment) life.Effect { return l.a.life.GiveBack(life.ByHolder, now) })
}

// End ends the lease after a call other than Leave has given it back.
func (l *Lease) End() { l.a.step(nil, l.a.life.End) }

// RenewNow brings the next renewal forward if the lease is held.
func (l *Lease) RenewNow() {
	l.a.step(nil, func(now life.Moment) life.Effect { l.a.life.RenewSoon(now); return 0 })
}

// Context returns a child of the acquiring ctx that ends when the lease is lost or given back.
// It is made on the first call, because many holders never ask for it.
func (l *Lease) Context() context.Context {
	l.acquired("context")
	m := l.a.m
	m.mu.Lock()
	ctx := l.a.ctx
	m.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(&l.parent) // not under the lock: it calls the code of the caller's ctx
	m.mu.Lock()
	if l.a.ctx == nil {
		l.a.ctx, l.a.cancel = ctx, cancel
	} else {
		defer cancel(nil)
	}
	ctx = l.a.ctx
	m.mu.Unlock()
	_ = l.Ended()
	return ctx
}

// CancelAtEnd makes the end of the lease end ctx by its cancel, with the cause with which the
// lease's own Context would end, before any call on the lease says that it is over. It replaces that
// of the turn before, and the Context of a lease that serves turns is not used. If the lease
// has ended already, Why says so, and the caller calls cancel. With a nil cancel nothing is ended.
func (l *Lease) CancelAtEnd(ctx context.Context, cancel context.CancelCauseFunc) {
	l.a.m.mu.Lock()
	l.a.ctx, l.a.cancel = ctx, cancel
	l.a.m.mu.Unlock()
}

// Why returns the cause with which the lease's Context ends, or nil while it is held.
func (l *Lease) Why() error {
	l.a.m.mu.Lock()
	defer l.a.m.mu.Unlock()
	if l.a.why == nil {
		return nil
	}
	return l.a.fail("hold")
}

// Ended is Why. When it returns a cause, the Context has ended: it is being ended on another
// goroutine, or here. Not to be called under a lock that the caller's ctx may want.
func (l *Lease) Ended() error {
	a := l.a
	a.m.mu.Lock()
	end := endedLease{ctx: a.ctx, cancel: a.cancel}
	if a.why != nil {
		end.why = a.fail("hold")
	}
	a.m.mu.Unlock()
	if end.why != nil {
		end.tell()
	}
	return end.why
}

// An endedLease is a lease that has just ended for its holder. Its Context is to be ended
// once the lock is free: the context package calls the code of the caller's ctx.
type endedLease struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	why    error
}

func (e endedLease) tell() { EndContext(e.ctx, e.cancel, e.why) }

// EndContext ends ctx by its cancel, unless that is nil. The package context ends ctx first, and then
// calls the code of the caller's ctx. If that panics, it ends no process. If it hangs, it holds up no
// other lease: only the holder's own goroutine, which releases, waits for it.
func EndContext(ctx context.Context, cancel context.CancelCauseFunc, why error) {
	if cancel == nil {
		return
	}
	end := func() {
		defer func() { _ = recover() }()
		cancel(why)
	}
	if errors.Is(why, leasehold.ErrReleased) {
		end()
		return
	}
	go end()
	<-ctx.Done()
}

// Deadline returns the time until which the lease is surely held if no later renewal succeeds.
// It is never later than the end of MaxHold, however long the lease lasts on the server.
func (l *Lease) Deadline() time.Time {
	a := l.a
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return Earlier(a.m.time(a.life.Deadline), a.m.time(a.life.MaxEnd))
}

// Earlier returns the earlier of t and end. A zero end means that there is no end.
func Earlier(t, end time.Time) time.Time {
	if !end.IsZero() && end.Before(t) {
		return end
	}
	return t
}

// HeldAt reports whether the lease is held at the time now.
func (l *Lease) HeldAt(now time.Time) bool {
	a := l.a
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return a.life.State == life.Holding && a.m.moment(now) < a.life.Deadline
}

// Key returns the key as the caller wrote it.
func (l *Lease) Key() string { return l.a.key }

// Token returns the fencing token, or 0 if there is none.
func (l *Lease) Token() uint64 { return l.a.token }

// Since returns the time at which the process learned of the grant.
func (l *Lease) Since() time.Time { return l.a.m.time(l.a.grantAt) }

// ID returns the name of the lease in listings. It is not the owner id.
func (l *Lease) ID() string { return l.a.req.ID() }

// Request returns the request that was granted, for the package of its Protocol.
func (l *Lease) Request() protocol.Request { return l.a.req }

// ByEnter reports whether the grant came in the reply to the attempt's own enter. Otherwise
// another call granted it, which may have run before or after the attempt's own calls.
func (l *Lease) ByEnter() bool { return l.a.byEnter }

// EnterMayArriveUntil returns the server time (µs) until which a copy of the lease's enter may
// still arrive; 0: none can. Calls other than Leave that end the lease need it.
func (l *Lease) EnterMayArriveUntil() int64 {
	l.a.m.mu.Lock()
	defer l.a.m.mu.Unlock()
	return l.a.void
}

// Above returns the lease whose Context ctx descends from, the nearest one; nil: there is none.
func Above(ctx context.Context) *Lease {
	l, _ := nested.Above(ctx).(*Lease)
	return l
}

// PermitsOf implements [nested.Hold].
func (l *Lease) PermitsOf(handle any, key string) int {
	m := l.a.m
	if handle != any(m) || key != "" && l.a.key != key {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.a.life.State != life.Holding {
		return 0
	}
	return l.a.permits
}

// Held returns nil while the lease is held. Afterwards it returns an error of the operation op
// that says why the lease is over.
func (l *Lease) Held(op string) error {
	if l.Ended() == nil {
		return nil
	}
	a := l.a
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if a.life.Released || a.life.Ending == life.ByClose {
		return a.m.fail(op, a.res.Label(), leasehold.ErrReleased)
	}
	return a.fail(op)
}

// extendPatience bounds how long an Extend starts new tries.
const extendPatience = time.Second

// Extend moves the expiry to ttl from now. It never moves it back.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	const op = "extend"
	a := l.a
	m := a.m
	defer m.events.Observed()
	if ttl = min(ttl, maxTTL); ttl < MinTTL {
		return m.fail(op, a.res.Label(), keys.Invalid("ttl is %v; want at least %v", ttl, MinTTL))
	}
	if m.cfg.Quorum != nil && ttl > m.cfg.ofFamily {
		// A server that has forgotten its votes abstains for one TTL: no vote may last longer.
		return m.fail(op, a.res.Label(), keys.Invalid("ttl is %v; want at most %v, the TTL of the quorum", ttl, m.cfg.ofFamily))
	}
	if err := l.Held(op); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return m.fail(op, a.res.Label(), err)
	}
	if end := m.time(a.life.MaxEnd); !end.IsZero() {
		ttl = TermWithin(ttl, time.Until(end))
	}
	r, done, err := call.Wait(ctx, m.Go, func(ctx context.Context) (protocol.Reply, error) { return l.sendExtend(ctx, ttl) })
	switch {
	case done && (err == nil || r.Code == life.Foreign):
		return l.Held(op)
	case !done:
		err = errNoAnswer
	}
	return m.fail(op, a.res.Label(), ctx.Err(), leasehold.ErrUnavailable, err)
}

// sendExtend renews the lease for ttl. It repeats the call a few times until it is answered.
func (l *Lease) sendExtend(ctx context.Context, ttl time.Duration) (r protocol.Reply, err error) {
	a := l.a
	a.m.count() // its outcome may have to do with a leave that Close waits for
	defer a.m.done()
	began := time.Now()
	for n := 1; ; n++ {
		a.m.mu.Lock()
		c := a.renewal(time.Now(), protocol.RenewOptions{Term: ttl})
		a.m.mu.Unlock()
		ints, err := a.m.client.Do(ctx, c)
		switch r = a.onRenewed(c, ttl, ints, err); {
		case r.Code == life.Granted:
			return r, r.Err // if too few replicas confirmed it: it has waited for them as long as allowed
		case r.Code == life.Gone || r.Code == life.Revoked || r.Code == life.Ended || r.Code == life.Foreign:
			return r, nil
		case r.Code == life.Refused || n == life.MaxTries || ctx.Err() != nil || time.Since(began) > extendPatience || l.isReleased():
			return r, r.Err
		}
		time.Sleep(call.Backoff(n))
	}
}

func (l *Lease) isReleased() bool {
	l.a.m.mu.Lock()
	defer l.a.m.mu.Unlock()
	return l.a.life.State > life.Lost
}
