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
	r := at.hear(e.call, ints, err, func(reply []int64) (Reply, error) { return at.req.ReadEnter(e.call, reply) })
	sentAt, gotAt := e.call.Sent, time.Now()
	if sentAt.IsZero() {
		sentAt = e.made
	}
	if r.Now > 0 {
		m.client.Learn(at.res.FirstKey(), call.Sample{Micros: r.Now, Sent: sentAt, Got: gotAt})
		m.events.RoundTrip(m.cfg.TTL, gotAt.Sub(sentAt))
	}
	if r.Code == Busy || r.Code == TooMany || r.Code == QueueFull {
		state := r.State // a copy, so that the reply can be freed
		r.Result.State = &state
		r.Limit = state.Limit
	}
	at.step(&r.Result, func(moment) effect {
		if r.Copied || r.Code == Unanswered {
			at.void = max(at.void, e.void)
		}
		at.failure = r.Err
		was, sent, got := at.state, m.moment(sentAt), m.moment(gotAt)
		fx := at.onEnter(&r.Result, sent, got)
		switch {
		case was != entering:
		case at.state == queued:
			at.join(&r, sent, got)
			if at.AwaitsKept {
				at.kept = &kept{trip: got - sent}
			}
		case at.state == held:
			at.byEnter = true
			if at.Keeps {
				at.kept = &kept{grant: Grant{Sent: sentAt, Keepable: !r.Contended && at.ticket == 0, Added: r.Added}}
			}
		}
		return fx
	})
	if r.More {
		m.goOnEntering(at.res)
	}
}
