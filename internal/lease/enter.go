package lease

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// An enter is one call of that kind. It may outlive the Acquire that sent it.
type enter struct {
	at   *attempt
	call *call.Call
	seat *call.Seat // nil: by itself
	made time.Time
	void int64 // server time (µs) from which on the enter does nothing; see call.Call.Void
}

// prepare makes the enter that is sent next. us is the latest time that the server's clock can
// show.
func (c *caller) prepare(us int64) *enter {
	at := c.at
	e := &enter{at: at, seat: at.Seat, made: time.Now(), void: us + voidAfter.Microseconds()}
	o := EnterOptions{VoidAfter: &e.void, Wait: at.Wait, Ticket: at.ticket, MaxWaiters: c.m.cfg.MaxWaiters, AwaitsKept: at.AwaitsKept}
	if at.ticket != 0 || c.again {
		o.MaxWaiters = 0 // it has a place in the queue already
	}
	e.call = at.req.Enter(o)
	e.call.Confirm, e.call.Void, e.call.VoidAfter = c.m.confirm, &e.void, voidAfter
	at.Seat = nil // only the first enter uses the seat
	return e
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
	var r Reply
	if err == nil {
		r, err = at.req.ReadEnter(e.call, ints)
	}
	m.reached(at.res, err)
	sent, got := e.call.Sent, time.Now()
	if sent.IsZero() {
		sent = e.made
	}
	if err != nil {
		r.Result = at.noReply(err)
	} else {
		m.client.Learn(at.res.FirstKey(), call.Sample{Micros: r.Now, Sent: sent, Got: got})
		m.events.RoundTrip(m.cfg.TTL, got.Sub(sent))
	}
	r.Copied = e.call.Copied()
	if r.Code == Granted && m.replicated() && e.call.Confirm == m.confirm {
		r.Err = e.call.Unconfirmed()
		r.TooFew, r.Confirmed = r.Err != nil, r.Err == nil
	}
	if r.Code == Busy || r.Code == TooMany || r.Code == QueueFull {
		state := r.State // a copy, so that the reply can be freed
		r.Result.State = &state
		r.Limit = state.Limit
	}
	m.mu.Lock()
	m.deliver(r.Grants, m.moment(sent))
	if r.Copied || r.Code == Unanswered {
		at.void = max(at.void, e.void)
	}
	at.failure = err
	was := at.state
	fx := at.onEnter(&r.Result, m.moment(sent), m.moment(got))
	joins := at.state == queued && was != queued
	if joins {
		at.join(&r, m.moment(sent), m.moment(got))
	}
	if at.state == held && was == entering {
		at.byEnter = true
		if at.Keeps {
			at.kept = &kept{grant: Grant{Sent: sent, Keepable: !r.Contended && at.ticket == 0, Added: r.Added}}
		}
	}
	if joins && at.AwaitsKept {
		at.kept = &kept{trip: got.Sub(sent)}
	}
	end := at.after(was, fx, &r.Result)
	m.mu.Unlock()
	end.tell()
	if r.More {
		m.goOn(at.res)
	}
}
