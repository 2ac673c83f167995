package singleflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// run asks Redis for a flight, and waits if another process loads. Redis answers with the
// right to load, with a value or a failure that came meanwhile, or with the result of the load
// that the flight waited for. If the flight is to load, answered starts the load; else run
// ends the flight.
func (f *flight[T]) run(d *load[T], seat *call.Seat) {
	a := lease.Attempt{
		Op: "load", Key: f.key, Permits: 1, Limit: 1, Wait: f.wait, Want: f.rejected,
		Parent: context.Background(), Seat: seat,
		BeforeEnter: f.beforeAsk, OnWait: func() { d.answered(f, false) },
	}
	ctx, stop := f.ctx, context.CancelFunc(func() {})
	if f.g.cfg.OnUnavailable == LoadLocally {
		ctx, stop = f.g.manager.Client().WhileReachable(ctx, f.value)
	}
	got, err := f.g.manager.Acquire(ctx, a, &f.lease)
	away := ctx.Err() != nil && f.ctx.Err() == nil
	stop()
	switch came, _ := got.(loads.Answer); {
	case err != nil && away:
		f.onError(errAway, d)
	case err != nil:
		f.onError(err, d)
	case got == nil:
		f.holds()
		d.answered(f, true)
		return
	case came.Result != nil:
		f.onPublished(came.Token, *came.Result, d)
	case came.Value != "":
		f.onValue(came.Value)
	default:
		f.onRememberedFailure(came.Failure, d)
	}
	d.answered(f, false)
}

// beforeAsk is called before the flight asks Redis on behalf of the requests that it has.
func (f *flight[T]) beforeAsk() {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	for q := range f.requests {
		q.joinedBeforeAsk = true
	}
}

// errAway ends the wait of a flight under LoadLocally when Redis goes away.
var errAway = fmt.Errorf("%w: it went away during the wait", leasehold.ErrUnavailable)

// onError ends a flight that could not ask Redis, or that found another load and may not
// wait. Under LoadLocally, a flight that could not ask loads without Redis.
func (f *flight[T]) onError(err error, d *load[T]) {
	g := f.g
	busy, loadsElsewhere := errors.AsType[*leasehold.BusyError](err)
	loadsElsewhere = loadsElsewhere && !f.wait
	loadsLocally := errors.Is(err, leasehold.ErrUnavailable) && f.ctx.Err() == nil && g.cfg.OnUnavailable == LoadLocally
	g.mu.Lock()
	// A refresh without requests does not load locally, because its result would not be
	// stored.
	if loadsLocally && len(f.requests) > 0 {
		// From here on, only requests that cannot reach Redis either may join.
		f.closeJoining()
		first := g.localFlights[f.key] == nil
		if first { // and the group is open, or Close had taken the requests
			g.localFlights[f.key] = f
		} else {
			g.joinLocally(f.takeRequests())
		}
		g.mu.Unlock()
		d.answered(f, first)
		return
	}
	switch {
	case loadsElsewhere:
		g.pauseRefresh(f.key, min(refreshPause, max(busy.RetryAfter, time.Millisecond)))
	case f.background:
		g.pauseRefresh(f.key, refreshPause)
	}
	open := f.takeRequests()
	g.mu.Unlock()
	// A request that joined a refresh is willing to wait. After a revocation nothing has run.
	if loadsElsewhere || errors.Is(err, leasehold.ErrRevoked) {
		f.startAnew(open)
		return
	}
	answer(open, outcome[T]{errs: inner(err)})
}

// onValue ends a flight whose enter was answered with a value that came meanwhile.
func (f *flight[T]) onValue(raw string) {
	e := f.g.judgeNow(f.target, raw, true)
	if !e.fresh() {
		f.askAgain(e.rejected)
		return
	}
	f.conclude(func(before bool, open []*request[T]) []*request[T] {
		if before {
			return f.answerWith(open, e.env, e.age, Cached)
		}
		return f.answerFromCache(open, Cached)
	})
}

// onRememberedFailure ends a flight whose enter was answered with a remembered failure. If the
// answer is the mark that the key's values are too large, the flight loads without
// coordination instead.
func (f *flight[T]) onRememberedFailure(raw string, d *load[T]) {
	env, err := envelope.Decode(raw)
	switch {
	case err == nil && env.Kind == envelope.TooLarge:
		f.tooLargeMark = raw
		d.answered(f, true)
		return
	case err != nil || !isFailure(env.Kind):
		f.g.undecodable(context.Background(), f.target, errors.Join(err, errNoFailure))
		rejected := f.rejected
		rejected.Failure = sum(raw)
		f.askAgain(rejected)
		return
	}
	f.pauseIfRefresh()
	f.conclude(func(before bool, open []*request[T]) []*request[T] {
		if !before {
			// If the failure is still remembered, it has not been invalidated since.
			now, err := f.g.get(f.failure())
			if err != nil || now != raw {
				return open
			}
		}
		return f.answerWith(open, env, 0, Shared)
	})
}

// onPublished ends a flight that waited for another process's load. token is the token of that
// load. If its value was too large to be passed on, the flight loads without coordination
// instead.
func (f *flight[T]) onPublished(token uint64, r loads.Record, d *load[T]) {
	env, atHand := f.result(r)
	if atHand && env.Kind == envelope.TooLarge {
		f.tooLargeMark = r.Envelope
		d.answered(f, true)
		return
	}
	f.conclude(func(before bool, open []*request[T]) []*request[T] {
		switch {
		case before && atHand:
			return f.answerWith(open, env, 0, Shared)
		case r.Stored:
			return f.answerFromCache(open, Shared)
		case before || !r.Invalidated:
			// The result was not stored, but is kept for a moment under the load's token. If
			// it is still there, it has not been invalidated since.
			return f.answerFromRecord(open, token)
		}
		return open
	})
}

// result returns the result of another process's load, if it is part of the record and this
// group can use it.
func (f *flight[T]) result(r loads.Record) (e envelope.Envelope, ok bool) {
	if r.Envelope == "" {
		return e, false
	}
	e, err := envelope.Decode(r.Envelope)
	if err == nil && (e.Kind != envelope.Value || (e.Schema == f.g.cfg.Schema && len(e.Payload) <= f.g.cfg.MaxValueBytes)) {
		return e, true
	}
	f.g.undecodable(context.Background(), f.target, errors.Join(err, errNoValue))
	return e, false
}

// askAgain makes all requests start anew, with rejected as the entry that cannot be served.
func (f *flight[T]) askAgain(rejected loads.Rejected) {
	f.rejected = rejected
	f.conclude(func(_ bool, open []*request[T]) []*request[T] { return open })
}

// conclude ends the flight. It calls serve for the requests that joined before Redis was
// asked, then for those that joined later. The requests that serve returns start anew.
func (f *flight[T]) conclude(serve func(before bool, open []*request[T]) (unserved []*request[T])) {
	f.g.mu.Lock()
	before, later := split(f.takeRequests())
	f.g.mu.Unlock()
	var unserved []*request[T]
	if len(before) > 0 {
		unserved = serve(true, before)
	}
	if len(later) > 0 {
		// No request can join any more. So a GET that serve begins now shows whether the
		// result was invalidated before the last of them joined.
		unserved = append(unserved, serve(false, later)...)
	}
	f.startAnew(unserved)
}

func (f *flight[T]) answerWith(open []*request[T], e envelope.Envelope, age time.Duration, from Source) []*request[T] {
	o := outcome[T]{env: e, source: from, age: age}
	if e.Kind != envelope.Value {
		o.errs = []error{f.g.asError(e)}
	}
	answer(open, o)
	return nil
}

// answerFromCache serves requests with what is in the cache now, whichever load it is from. It
// has not been invalidated, because it is still there.
func (f *flight[T]) answerFromCache(open []*request[T], from Source) []*request[T] {
	raw, err := f.g.get(f.value)
	if err != nil {
		return f.onGetError(open, err)
	}
	// The GET may be answered from the client's own cache, with the entry that was already
	// rejected.
	e := f.g.judgeNow(f.target, raw, false)
	if !e.usable || e.rejected.Value == f.rejected.Value {
		return open
	}
	return f.answerWith(open, e.env, e.age, from)
}

// answerFromRecord serves requests with the recorded result of the load with this token.
func (f *flight[T]) answerFromRecord(open []*request[T], token uint64) []*request[T] {
	raw, err := f.g.get(f.landed())
	if err != nil {
		return f.onGetError(open, err)
	}
	of, r, err := loads.ParseRecord(raw)
	if err != nil || of != token {
		return open
	}
	if env, ok := f.result(r); ok && env.Kind != envelope.TooLarge { // that they load for themselves, when they start anew
		return f.answerWith(open, env, 0, Shared)
	}
	return open
}

// onGetError tells requests that the result could not be read. They start anew if it is not
// there, and under LoadLocally, where they load.
func (f *flight[T]) onGetError(open []*request[T], err error) []*request[T] {
	if errors.Is(err, redis.Nil) || f.g.cfg.OnUnavailable == LoadLocally {
		return open
	}
	answer(open, outcome[T]{errs: []error{leasehold.ErrUnavailable, err}})
	return nil
}
