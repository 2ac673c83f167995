package loads

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/luascripts"
)

var publishScript = call.NewScript("load publish", luascripts.LoadsPublish())

// Result is the result of a load in the form in which it is published.
type Result struct {
	Prefix, Suffix string // the two parts of the envelope; the script puts the stamp between them

	// Keep is how long the result is kept as the value; 0: not at all; negative: not at all,
	// and the value that is there is dropped.
	Keep time.Duration
	// Remember is how long the result is remembered as the failure; 0: not at all.
	Remember time.Duration
}

type PublishState int64

const (
	LeaseOver  PublishState = 0 // the lease had ended; nothing was done
	Published  PublishState = 1
	HandedOnly PublishState = 2 // the load was invalidated: handed to the waiters, not stored
)

type PublishReply struct {
	State PublishState
	Left  int // waiters that are still to be told, by the next call
}

// Publish prepares the call that publishes under the lease with this token and gives the lease
// back.
func (q *Request) Publish(token uint64, enterMayArriveUntil int64, r Result) *call.Call {
	keep := call.Milliseconds(r.Keep)
	if r.Keep < 0 {
		keep = -1
	}
	c := q.res.call(publishScript, own, q.ownerID, token, call.MillisecondsUp(enterMayArriveUntil), r.Prefix, r.Suffix, keep, call.Milliseconds(r.Remember))
	c.Rank = call.GivesBack
	return c
}

func ReadPublish(v []int64) (PublishReply, error) {
	if len(v) != 3 || v[0] < 0 || v[0] > 2 {
		return PublishReply{}, call.Malformed("load publish", v)
	}
	return PublishReply{State: PublishState(v[0]), Left: int(v[2])}, nil
}

// Publication is the result of a load, to be published under its lease.
type Publication struct {
	Lease  *lease.Lease
	Result Result

	// The outcome. Err is set if the outcome is not known or the server refused.
	State PublishState
	Err   error
	// Unstored is the error with which the server refused to store the result. The result is
	// then published again without storing it, so that only the waiters get it.
	Unstored error
}

var errNoAnswer = errors.New("no answer in time")

const (
	// publishWithin is how long a caller waits for its value to be published.
	publishWithin = time.Second
	// publishTrips is how many round trips it waits for where that is longer: a new connection takes
	// several, and a crowd of calls may be ahead.
	publishTrips = 8
	// publishRate is how many bytes of results it lets a second be sent, where that takes longer.
	publishRate = 1 << 20
)

// Publish publishes results of loads in one round trip and gives their leases back. It tries
// for publishWithin, publishTrips or as publishRate says. If a publication has no answer by then, its lease
// is given back in the background. Its waiters then load again and are not held up.
func Publish(m *lease.Manager, all []*Publication) {
	within, size := publishWithin, 0
	for _, p := range all {
		within = max(within, publishTrips*m.Client().Trip(request(p.Lease).res.FirstKey()))
		size += len(p.Result.Prefix) + len(p.Result.Suffix)
	}
	within = max(within, time.Duration(size)*(time.Second/publishRate))
	bound := time.NewTimer(min(within, call.Bound))
	defer bound.Stop()
	var open []*Publication
	for _, p := range all {
		if p.Lease.Held("publish") != nil {
			p.State = LeaseOver
			p.Lease.GiveBack()
			continue
		}
		p.Err = errNoAnswer
		open = append(open, p)
	}
	for n := 1; len(open) > 0; n++ {
		outcomes := send(m, open)
		var unanswered []*Publication
		for range open {
			select {
			case o := <-outcomes:
				if o.p.onOutcome(o.reply, o.err) {
					unanswered = append(unanswered, o.p)
				}
			case <-bound.C:
				giveUp(open)
				return
			}
		}
		if open = unanswered; len(open) == 0 {
			return
		}
		select {
		case <-time.After(call.Backoff(n)):
		case <-bound.C:
			giveUp(open)
			return
		}
	}
}

// giveUp gives back the leases of publications without an answer. This does not affect a lease
// that a publication has already given back.
func giveUp(open []*Publication) {
	for _, p := range open {
		p.Lease.GiveBack()
	}
}

type publishOutcome struct {
	p     *Publication
	reply PublishReply
	err   error
}

// send sends publications once. The channel has room for all outcomes, because the caller may
// have stopped waiting for them.
func send(m *lease.Manager, open []*Publication) <-chan publishOutcome {
	outcomes := make(chan publishOutcome, len(open))
	calls := make([]*call.Call, len(open))
	for i, p := range open {
		result := p.Result // a copy, because onOutcome may change p.Result for the next try
		calls[i] = request(p.Lease).Publish(p.Lease.Token(), p.Lease.EnterMayArriveUntil(), result)
		calls[i].Done = func(v []int64, err error) {
			var r PublishReply
			if err == nil {
				r, err = ReadPublish(v)
			}
			if err == nil && r.Left > 0 {
				tellOthers(m, p.Lease, result)
			}
			outcomes <- publishOutcome{p, r, err}
		}
	}
	m.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), call.Bound)
		defer cancel()
		m.Client().Send(ctx, calls)
	})
	return outcomes
}

// onOutcome processes the outcome of a try, and reports whether to send it again.
func (p *Publication) onOutcome(r PublishReply, err error) (again bool) {
	switch {
	case err == nil:
		p.State, p.Err = r.State, nil
		p.Lease.End()
		return false
	case call.Classify(err) != call.Refused:
		p.Err = err
		return true
	case p.Unstored == nil && (p.Result.Keep > 0 || p.Result.Remember > 0):
		// For example, the server is out of memory. The script stores before it does anything
		// else, so nothing is done yet. Without storing, it can still hand out the result and
		// end the lease.
		p.Unstored, p.Err = err, err
		if p.Result.Remember = 0; p.Result.Keep > 0 {
			p.Result.Keep = -1 // drop the value that is there, because it is older
		}
		return true
	default:
		p.Err = err
		p.Lease.GiveBack()
		return false
	}
}

// tellOthers sends a publication again if it has more waiters than one call tells. The script
// finds its own record, stores nothing again and tells the next waiters.
func tellOthers(m *lease.Manager, l *lease.Lease, r Result) {
	m.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), call.Bound)
		defer cancel()
		for {
			v, err := m.Client().Do(ctx, request(l).Publish(l.Token(), 0, r))
			if err != nil {
				return // the other waiters learn of it when they ask
			}
			if r, err := ReadPublish(v); err != nil || r.Left == 0 {
				return
			}
		}
	})
}

func request(l *lease.Lease) *Request { return l.Request().(*Request) }

// Unwatch says that no caller of this process waits any more for the load under l. From then
// on the renewals end the lease if no other process waits either. The next one is sent now.
func Unwatch(l *lease.Lease) {
	request(l).Unwatch()
	l.RenewNow()
}

// Unwatch makes the renewals of the request end its lease if no process waits.
func (q *Request) Unwatch() { q.unwatched.Store(true) }
