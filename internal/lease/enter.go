package lease

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// An enter is one call of that kind. It may outlive the Acquire that sent it.
type enter struct {
	at   *attempt
	call *call.Call
	seat *call.Seat // nil: by itself
	made time.Time
	void int64 // server time (µs) from which on the enter does nothing; see call.Call.Void
}

// prepare makes the enter that is sent next. us is the latest time that the server's clock can show.
func (c *caller) prepare(us int64) *enter {
	at := c.at
	e := &enter{at: at, seat: c.of.Seat, made: time.Now(), void: us + life.VoidAfter.Microseconds()}
	o := protocol.EnterOptions{VoidAfter: &e.void, Wait: c.of.Wait, Ticket: at.ticket, MaxWaiters: c.m.cfg.MaxWaiters, AwaitsKept: c.of.AwaitsKept}
	if at.ticket != 0 || c.again {
		o.MaxWaiters = 0 // it has a place in the queue already
	}
	e.call = at.req.Enter(o)
	e.call.Confirm, e.call.Void, e.call.VoidAfter = c.m.confirm, &e.void, life.VoidAfter
	c.of.Seat = nil // only the first enter uses the seat
	return e
}

// send sends the enter. Before that it waits until the clock of the server is known.
func (c *caller) send() event {
	m, at := c.m, c.at
	c.asked = time.Now()
	us, clock := m.client.Now(at.res.FirstKey())
	if clock != nil {
		ev := sleep(c, at.wakes(), clock.Answered())
		select {
		case <-clock.Answered():
			if err := clock.Err(); err != nil && ev == answered {
				at.onNoClock(err, c.asked)
			}
		default: // it was woken, and looks
		}
		return ev
	}
	if c.of.BeforeEnter != nil {
		c.of.BeforeEnter()
	}
	m.mu.Lock()
	sends := at.life.Send()
	if sends {
		m.attempts[at.seq] = at // a grant may come before the reply
	}
	m.mu.Unlock()
	if !sends {
		return answered // a grant came meanwhile
	}
	e := c.prepare(us)
	if c.ctx.Done() == nil && c.maxWait == nil && e.seat == nil {
		// Nothing can end the call early, so save the switch to another goroutine.
		ints, err := []int64(nil), errNoAnswer // stays if a hook ends this one
		defer func() { e.onDone(ints, err) }()
		ints, err = m.client.Do(c.ctx, e.call)
		return answered
	}
	c.enter = e
	e.start(c.ctx)
	return answered
}

// wakes returns the channel on which the attempt wakes its caller.
func (a *attempt) wakes() <-chan struct{} {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if a.wake == nil {
		a.wake = make(chan struct{}, 1)
	}
	return a.wake
}

// onNoClock notes that an enter could not be sent, because the server did not tell its time.
func (a *attempt) onNoClock(err error, sent time.Time) {
	r := a.noReply(err)
	r.Code = life.NotSent
	a.step(&r, func(now life.Moment) life.Effect {
		a.failure = err
		return a.life.Unanswered(&r.Outcome, a.m.moment(sent), now)
	})
}

// detach withdraws the enter, if it is not sent yet. Otherwise it may run until it is void, and
// then takes what the leave must give back. It reports whether it was withdrawn.
func (c *caller) detach() (withdrawn bool) {
	at, e := c.at, c.enter
	c.enter = nil
	withdrawn = e != nil && e.call.Withdraw()
	at.step(nil, func(now life.Moment) life.Effect {
		switch {
		case withdrawn:
			at.life.Withdraw()
		case e != nil && at.life.Flying:
			at.void = max(at.void, e.void)
		}
		at.life.Detach(now+life.VoidAfter, now)
		return 0
	})
	return withdrawn
}

// start sends the enter and does not wait. The caller may have left when the reply comes. The
// reply is processed all the same, because it may carry grants to other waiters.
func (e *enter) start(ctx context.Context) {
	m := e.at.m
	if e.seat != nil {
		m.Go(func() {
			ints, err := []int64(nil), errNoAnswer // stays if a hook ends the goroutine
			defer func() { e.onDone(ints, err) }()
			ints, err = e.seat.Do(ctx, m.single, e.call)
		})
		return
	}
	m.count()
	e.call.Done = func(ints []int64, err error) {
		defer m.done()
		e.onDone(ints, err)
	}
	m.client.Start(ctx, nil, e.call)
}

// onDone processes the outcome of the enter.
func (e *enter) onDone(ints []int64, err error) {
	at := e.at
	m := at.m
	r := at.hear(e.call, ints, err, func(reply []int64) (protocol.Reply, error) { return at.req.ReadEnter(e.call, reply) })
	sentAt, gotAt := e.call.Sent, time.Now()
	if sentAt.IsZero() {
		sentAt = e.made
	}
	if r.Now > 0 {
		m.client.Learn(at.res.FirstKey(), call.Sample{Micros: r.Now, Sent: sentAt, Got: gotAt})
		m.events.RoundTrip(m.cfg.TTL, gotAt.Sub(sentAt))
	}
	if r.Code == life.Busy || r.Code == life.TooMany || r.Code == life.QueueFull {
		state := r.State // a copy, so that the reply can be freed
		r.Result.State = &state
		r.Limit = state.Limit
	}
	at.step(&r.Result, func(life.Moment) life.Effect {
		if r.Copied || r.Code == life.Unanswered {
			at.void = max(at.void, e.void)
		}
		if at.why == nil {
			at.failure = r.Err
		}
		was, sent, got := at.life.State, m.moment(sentAt), m.moment(gotAt)
		fx := at.life.OnEnter(&r.Outcome, sent, got)
		switch {
		case was != life.Entering:
		case at.life.State == life.Waiting:
			at.join(&r, sent, got)
			if !at.life.Waits { // it awaits kept permits
				at.kept = &kept{trip: got - sent}
			}
		case at.life.State == life.Holding:
			at.byEnter = true
			if at.keeps {
				at.kept = &kept{grant: Grant{Sent: sentAt, Keepable: !r.Contended && at.ticket == 0, Added: r.Added}}
			}
		}
		return fx
	})
	if r.More {
		m.goOnEntering(at.res)
	}
}
