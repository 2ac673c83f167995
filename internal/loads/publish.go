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

// Result is what a load came to, as it is published.
type Result struct {
	Prefix, Suffix string        // the envelope, but for the stamp between them
	Keep           time.Duration // as the value; 0 = not at all; negative = and drop the value that is there
	Remember       time.Duration // as the failure; 0 = not at all
}

// PublishState says what became of a publication.
type PublishState int64

// The states that the script answers.
const (
	LeaseOver  PublishState = 0 // the lease had ended: nothing was done
	Published  PublishState = 1
	HandedOnly PublishState = 2 // it was invalidated: handed to the waiters, not stored
)

// PublishReply is what the script answered.
type PublishReply struct {
	State PublishState
	Now   int64 // server, µs
	Left  int   // waiters that the next call tells
}

// Publish prepares the call that publishes under the lease with this token, and gives
// the lease back.
func (q *Request) Publish(token uint64, enterMayArriveUntil int64, r Result) *call.Call {
	keep := call.Milliseconds(r.Keep)
	if r.Keep < 0 {
		keep = -1
	}
	c := q.res.call(publishScript, q.ownerID, token, (enterMayArriveUntil+999)/1000, r.Prefix, r.Suffix, keep, call.Milliseconds(r.Remember))
	c.GivesBack = true
	return c
}

func ReadPublish(v []int64) (PublishReply, error) {
	if len(v) != 3 || v[0] < 0 || v[0] > 2 {
		return PublishReply{}, call.Malformed("load publish", v)
	}
	return PublishReply{State: PublishState(v[0]), Now: v[1], Left: int(v[2])}, nil
}

// Publication is the result of a load, to be published under its lease.
type Publication struct {
	Lease  *lease.Lease
	Result Result

	// What became of it. Err: it is not known, or was refused.
	State PublishState
	At    int64 // server, µs
	Err   error
	// Unstored is why the server would not store it; it was handed to the waiters.
	Unstored error
}

var errNoAnswer = errors.New("no answer in time")

// Publish publishes results of loads in one round trip, and gives their leases back.
// It tries for as long as within says. Where a publication has no answer by then, its
// lease is given back in the background, so that its waiters are not kept: they load
// again.
func Publish(m *lease.Manager, all []*Publication, within time.Duration) {
	bound := time.NewTimer(within)
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
		pause := time.NewTimer(call.Backoff(n))
		select {
		case <-pause.C:
		case <-bound.C:
			pause.Stop()
			giveUp(open)
			return
		}
	}
}

// giveUp gives back the leases of publications that have no answer. A lease that was
// given back by a publication already is not touched by that.
func giveUp(open []*Publication) {
	for _, p := range open {
		p.Lease.GiveBack()
	}
}

// publishOutcome is what one try to publish came to.
type publishOutcome struct {
	p     *Publication
	reply PublishReply
	err   error
}

// send sends publications once. The channel has room for all outcomes: nobody may
// wait for them any more.
func send(m *lease.Manager, open []*Publication) <-chan publishOutcome {
	outcomes := make(chan publishOutcome, len(open))
	calls := make([]*call.Call, len(open))
	for i, p := range open {
		result := p.Result // as it is sent now: onOutcome may change it for the next try
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

// onOutcome takes the outcome of a try, and says whether to send it again.
func (p *Publication) onOutcome(r PublishReply, err error) (again bool) {
	switch {
	case err == nil:
		p.State, p.At, p.Err = r.State, r.Now, nil
		p.Lease.End()
		return false
	case call.Classify(err) != call.Refused:
		p.Err = err
		return true
	case p.Unstored == nil && (p.Result.Keep > 0 || p.Result.Remember > 0):
		// Out of memory, say: the script stores before it does anything else, so
		// nothing is done yet. Without storing it can hand out and end the lease.
		p.Unstored, p.Err = err, err
		if p.Result.Remember = 0; p.Result.Keep > 0 {
			p.Result.Keep = -1 // the value that is there is older
		}
		return true
	default:
		p.Err = err
		p.Lease.GiveBack()
		return false
	}
}

// tellOthers sends a publication again that has more waiters than one call tells. It
// finds its own record, stores nothing again and tells the next ones.
func tellOthers(m *lease.Manager, l *lease.Lease, r Result) {
	m.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), call.Bound)
		defer cancel()
		for {
			v, err := m.Client().Do(ctx, request(l).Publish(l.Token(), 0, r))
			if err != nil {
				return // the waiters ask by themselves
			}
			if r, err := ReadPublish(v); err != nil || r.Left == 0 {
				return
			}
		}
	})
}

// request is the request of a lease of a load.
func request(l *lease.Lease) *Request { return l.Request().(*Request) }

// Unwatch says that no caller of this process waits any more for the load under l:
// the renewals, of which the next is sent now, end the lease where no other process
// waits either.
func Unwatch(l *lease.Lease) {
	request(l).Unwatch()
	l.RenewNow()
}

// Unwatch makes the renewals of the request end its lease where no process waits.
func (q *Request) Unwatch() { q.unwatched.Store(true) }
