package lease

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// Turns is the set of turns that a lease serves, one after the other. Each turn has its own
// MaxHold and MaxWait.
type Turns interface {
	// LeaseEnded is called on its own goroutine when the lease is lost or Close ends it.
	LeaseEnded()
}

// A Place is one place in the queue that a process holds for all of its callers. A caller that
// leaves does not take it away.
type Place struct{ c caller }

// Enter is Acquire up to the server's first answer. If that is "queued", Enter returns the
// place, and the caller must call Await. maxWait ends the attempt as MaxWait ends an Acquire;
// with a nil maxWait only ctx and Close do.
func (m *Manager) Enter(ctx context.Context, of Attempt, maxWait <-chan time.Time, into *Lease) (*Place, error) {
	res, err := m.begin(ctx, of.Op, of.Key)
	if err != nil {
		return nil, err
	}
	c := caller{m: m, ctx: ctx, of: of, at: m.newAttempt(res, of), maxWait: maxWait, stops: true}
	return c.untilQueued(into)
}

// untilQueued runs until the attempt is queued, or ended. In the first case the operation stays
// counted, so that Close waits until Await has returned.
func (c *caller) untilQueued(into *Lease) (at *Place, err error) {
	defer func() {
		if at == nil {
			c.m.done()
		}
	}()
	isQueued, _, err := c.run(into)
	if isQueued {
		return &Place{*c}, nil
	}
	return nil, c.unlessClosed(into, err)
}

// Await waits until the place's turn has come, ctx ends or the handle is closed.
func (p *Place) Await(ctx context.Context, into *Lease) error {
	c := &p.c // State and Silent look at its attempt
	defer c.m.done()
	c.ctx, c.stops, c.maxWait = ctx, false, nil
	_, _, err := c.run(into)
	return c.unlessClosed(into, err)
}

// State returns the last state of the resource that Redis reported.
func (p *Place) State() (s protocol.State) {
	p.c.m.mu.Lock()
	defer p.c.m.mu.Unlock()
	if seen := p.c.at.seen(); seen != nil {
		s = *seen
	}
	return s
}

// Silent reports whether Redis has not answered for a while: neither the asks for the place,
// nor the enter if it has to queue again.
func (p *Place) Silent() bool {
	m := p.c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	at := p.c.at
	if g := at.group; g != nil {
		return g.asking.Silent(m.now())
	}
	return m.now()-at.leftGroup > life.Silence
}

// GiveBackAndEnter gives the lease back and enters again for the same process. One pipeline
// carries both calls, the enter first. So a TryAcquire of another process that arrives between
// the two finds a queue; and if nobody else waits, the leave grants to the new attempt at
// once. onLeft is called with the result that Release(op) would have, before the outcome of
// the new attempt is processed.
func (l *Lease) GiveBackAndEnter(ctx context.Context, op string, of Attempt, into *Lease, onLeft func(error)) (*Place, error) {
	m, res := l.a.m, l.a.res
	us, clock := m.client.Now(res.FirstKey())
	// The enter may have to wait, because the clock of this server is not known (any more),
	// or the server is known to be away. So the leave goes first, by itself.
	apart := clock != nil || m.client.Away(res.FirstKey())
	if apart {
		onLeft(l.Release(op)) // a hook may end the goroutine, so the enter is not counted yet
	}
	if _, err := m.begin(ctx, of.Op, of.Key); err != nil {
		if !apart {
			onLeft(l.Release(op))
		}
		return nil, err
	}
	c := &caller{m: m, ctx: ctx, of: of, at: m.newAttempt(res, of), stops: true, again: true}
	if apart {
		return c.untilQueued(into)
	}
	defer m.done() // of end
	if err := l.end(op, false); err != nil {
		onLeft(err)
		return c.untilQueued(into)
	}
	m.mu.Lock()
	c.at.life.Send()
	m.attempts[c.at.seq] = c.at
	leave := l.a.leaveCall()
	m.mu.Unlock()
	e := c.prepare(us)
	e.call.Confirm = call.Confirm{} // confirming needs a pipeline of its own; a grant is confirmed later
	replies, errs := m.single.DoBoth(m.client.Brief(), e.call, leave)
	// Process the leave first. A grant in its reply then finds an attempt that has not joined a
	// group, and no subscription is opened for it.
	l.a.onLeft(leave, replies[1], errs[1])
	onLeft(l.a.awaitLeave(op))
	e.onDone(replies[0], errs[0])
	return c.untilQueued(into)
}

// RenewAndCount renews the lease and asks how its resource is used, and, if the lease is kept,
// whether it was recalled. After an error the lease may not be held any more: it has ended, or
// its state is unknown.
func (l *Lease) RenewAndCount(kept bool) (protocol.Use, error) {
	a := l.a
	a.m.mu.Lock()
	c := a.renewal(time.Now(), protocol.RenewOptions{Term: a.m.cfg.TTL, Counts: true, Keeps: kept})
	a.m.mu.Unlock()
	ints, err := a.m.client.Do(a.m.client.Brief(), c)
	r := a.onRenewed(c, a.m.cfg.TTL, ints, err)
	if r.Code != life.Granted {
		return r.Use, errors.Join(r.Err, errGone)
	}
	return r.Use, nil
}

// SetLastToken sets the fencing token of the last turn that the lease has served. Every leave
// that is prepared from then on carries it.
func (l *Lease) SetLastToken(token uint64) { l.a.req.SetLastToken(token) }

// TokenAheadOfClock reports whether the lease's token was certainly ahead of the server's clock when it was granted.
// That happens if the clock went back: the token then continues from the last one.
func (l *Lease) TokenAheadOfClock() bool {
	const slack = 1000                 // µs: shorter than any lease, so the clock has passed it by the next grant
	since := l.a.m.now() - l.a.grantAt // before Now: the goroutine may stand still in between
	now, unknown := l.a.m.client.Now(l.a.res.FirstKey())
	return unknown == nil && l.a.token > uint64(now-since.Microseconds())+slack
}

// Closing returns a channel that is closed when Close begins.
func (m *Manager) Closing() <-chan struct{} { return m.closing }

// MaxWait returns how long a wait for a lease lasts at most; 0: no bound.
func (m *Manager) MaxWait() time.Duration { return m.cfg.MaxWait }

// Closed reports whether Close has begun.
func (m *Manager) Closed() bool { return isClosed(m.closing) }

// Kept leases: a lease whose holder has let go of it may rest in its process, idle and renewed,
// until somebody asks for it. internal/localturns decides that; this file has what it needs.

// A Keeper keeps leases that nobody uses. Its methods are called on the inbox's goroutine, with
// no lock. Both are hints: everybody who may publish can send the first one.
type Keeper interface {
	// Recalled says that a request found no room for a key (a Resource.FirstKey).
	Recalled(key string)
	// Listens says that recalls of a key are heard from now on. "": of all keys.
	Listens(key string)
}

// SetKeeper sets the Keeper of the handle. It is called before any attempt is made.
func (m *Manager) SetKeeper(k Keeper) { m.keeper = k }

// Listen makes the handle hear recalls of a key, until Unlisten is called. It returns the time
// since which they are heard. A zero time means not yet; the Keeper is told once they are.
func (m *Manager) Listen(key string) (since time.Time) { return m.inbox.Watch(key) }

// Unlisten ends one Listen.
func (m *Manager) Unlisten(key string) { m.inbox.Unwatch(key) }

// HeldFor notes how long a turn on a lease that may be kept has lasted.
func (m *Manager) HeldFor(d time.Duration) { m.holds.add(d) }

// A Grant tells how a lease was granted.
type Grant struct {
	Sent     time.Time // when the enter was sent; zero: the lease was granted by another call
	Keepable bool      // nobody was known to find no room
	Added    bool      // leases of enters that were sent before may have been recalled
}

// Grant returns how the lease was granted. A lease that another call granted is not Keepable:
// it was waited for.
func (l *Lease) Grant() Grant {
	if l.a.kept == nil {
		return Grant{}
	}
	return l.a.kept.grant
}

// kept is what an attempt notes only if kept leases matter to it.
type kept struct {
	grant Grant         // once its own enter was granted
	trip  time.Duration // of the enter that queued it for permits that may be on their way
}

// await returns how long an attempt that does not wait is queued for permits that other
// processes keep: the time that a recall takes, with some time for a busy machine.
func (k *kept) await() time.Duration {
	var trip time.Duration
	if k != nil {
		trip = k.trip
	}
	return min(50*time.Millisecond+4*trip, 250*time.Millisecond)
}

// Rest makes the lease idle, if it is held at the time now. It is renewed as before. If it is
// lost, it is given back, and nobody is told but its Turns.
func (l *Lease) Rest(now time.Time) bool { return l.isHeld(now, (*life.Life).Rest) }

// Resume ends the rest of a lease, if it is held at the time now.
func (l *Lease) Resume(now time.Time) bool { return l.isHeld(now, (*life.Life).Resume) }

// ServeTurns begins the turns of a lease whose attempt was its caller's Own: from now on each turn
// is a hold. It reports whether the lease is held; else the Observer was told that its hold ended.
func (l *Lease) ServeTurns() bool {
	a := l.a
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.turned = a.why == nil
	return a.turned
}

func (l *Lease) isHeld(now time.Time, step func(*life.Life, life.Moment) bool) bool {
	a := l.a
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return step(&a.life, a.m.moment(now))
}
