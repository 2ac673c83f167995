package singleflight

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// quietFor is how long a process that was told that another rebuilds a value
// doesn't offer to do so again.
const quietFor = 100 * time.Millisecond

// run sees a flight to its end.
func (f *flight[T]) run(j *lease.Joining, l *launch[T]) {
	out, err := j.Result(f.ctx, &f.lease)
	switch {
	case err != nil:
		f.failed(err, l)
	case out.Leads:
		f.g.lead(f)
		l.arrive(f, true)
		return
	case out.Code == engine.Found:
		f.found(out.Envelope)
	case out.Code == engine.Failed:
		f.remembered(out.Envelope, l)
	default:
		f.landed(out.Token, *out.Landed, l)
	}
	l.arrive(f, false)
}

// failed ends a flight that could not even ask, or was not to wait.
func (f *flight[T]) failed(err error, l *launch[T]) {
	g := f.g
	var busy *leasehold.BusyError
	taken := errors.As(err, &busy) && !f.wait
	alone := errors.Is(err, leasehold.ErrUnavailable) && f.ctx.Err() == nil && g.cfg.OnUnavailable == LoadLocally
	g.mu.Lock()
	// Not for a refresh that nobody waits for: what is loaded so is not stored.
	if alone && len(f.callers) > 0 {
		// From here on only who can't reach Redis either may join.
		f.close()
		if g.locals[f.t.key] == nil && !g.closed.Load() {
			g.locals[f.t.key] = f
		}
		g.mu.Unlock()
		l.arrive(f, true)
		return
	}
	switch {
	case taken:
		g.hush(f.t.key, min(quietFor, max(busy.RetryAfter, time.Millisecond)))
	case f.background:
		g.hush(f.t.key, quietFor)
	}
	callers := f.takeCallers()
	g.mu.Unlock()
	if taken {
		g.again(f, f.look, callers) // who joined wants to wait
		return
	}
	tell(callers, outcome[T]{errs: inner(err)})
}

// inner takes off the words that say which call an error is of: each caller has
// its own.
func inner(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// found ends a flight whose enter was answered with a value that came meanwhile.
func (f *flight[T]) found(raw string) {
	v := f.g.judgeNow(f.t, raw, true)
	if !v.fresh() {
		f.retry(v.look)
		return
	}
	f.settle(func(early bool, callers []*caller[T]) []*caller[T] {
		if early {
			return f.tellValue(callers, v.env, v.age, Cached)
		}
		return f.tellCached(callers, Cached)
	})
}

// remembered ends a flight whose enter was answered with a failure.
func (f *flight[T]) remembered(raw string, l *launch[T]) {
	e, err := envelope.Decode(raw)
	switch {
	case err == nil && e.Kind == envelope.TooLarge:
		f.mark = raw
		l.arrive(f, true)
		return
	case err != nil || !isFailure(e.Kind):
		f.g.undecodable(f.t, errors.Join(err, errNoFailure))
		look := f.look
		look.Poisoned = sum(raw)
		f.retry(look)
		return
	}
	f.g.mu.Lock()
	if f.background {
		f.g.hush(f.t.key, quietFor)
	}
	f.g.mu.Unlock()
	f.settle(func(early bool, callers []*caller[T]) []*caller[T] {
		if !early {
			// Still remembered, so nobody has invalidated it since.
			now, err := f.g.get(f.t.failure())
			if err != nil || now != raw {
				return callers
			}
		}
		return f.tellValue(callers, e, 0, Shared)
	})
}

var errNoFailure = errors.New("the envelope holds no failure")

func isFailure(k envelope.Kind) bool {
	return k == envelope.Failure || k == envelope.Timeout
}

// landed ends a flight that waited for another's load.
func (f *flight[T]) landed(token uint64, r engine.Record, l *launch[T]) {
	var e envelope.Envelope
	there := false
	if r.Envelope != "" {
		var err error
		if e, err = envelope.Decode(r.Envelope); err != nil || !f.acceptable(e) {
			f.g.undecodable(f.t, errors.Join(err, errNoValue))
		} else {
			there = true
		}
	}
	if there && e.Kind == envelope.TooLarge {
		f.mark = r.Envelope
		l.arrive(f, true)
		return
	}
	f.settle(func(early bool, callers []*caller[T]) []*caller[T] {
		switch {
		case early && there:
			return f.tellValue(callers, e, 0, Shared)
		case r.Stored:
			return f.tellCached(callers, Shared)
		case early || !r.Invalidated:
			// Not stored, but kept for a moment under the load's token. That it
			// is still there says also that nobody has invalidated it since.
			return f.tellRecord(callers, token)
		}
		return callers
	})
}

// acceptable reports whether a result that another process handed out is one of
// this group.
func (f *flight[T]) acceptable(e envelope.Envelope) bool {
	return e.Kind != envelope.Value || (e.Schema == f.g.cfg.Schema && len(e.Payload) <= f.g.cfg.MaxValueBytes)
}

// retry starts anew for all callers, with another view of what won't do.
func (f *flight[T]) retry(look engine.Look) {
	f.g.mu.Lock()
	callers := f.takeCallers()
	f.g.mu.Unlock()
	f.g.again(f, look, callers)
}

// settle closes the flight and serves those who came before Redis was asked, then
// those who joined later; whom serve returns start anew.
func (f *flight[T]) settle(serve func(early bool, callers []*caller[T]) []*caller[T]) {
	f.g.mu.Lock()
	callers := f.takeCallers()
	f.g.mu.Unlock()
	var left []*caller[T]
	early, late := split(callers)
	if len(early) > 0 {
		left = serve(true, early)
	}
	if len(late) > 0 {
		left = append(left, serve(false, late)...)
	}
	f.g.again(f, f.look, left)
}

func split[T any](callers []*caller[T]) (early, late []*caller[T]) {
	for _, c := range callers {
		if c.early {
			early = append(early, c)
		} else {
			late = append(late, c)
		}
	}
	return early, late
}

func byOrder[T any](callers []*caller[T]) []*caller[T] {
	slices.SortFunc(callers, func(a, b *caller[T]) int { return a.order - b.order })
	return callers
}

// tellValue serves callers with what an envelope holds.
func (f *flight[T]) tellValue(callers []*caller[T], e envelope.Envelope, age time.Duration, from Source) []*caller[T] {
	o := outcome[T]{env: e, source: from, age: age}
	if e.Kind != envelope.Value {
		o.errs = []error{asError(e)}
	}
	tell(callers, o)
	return nil
}

// tellCached serves callers with what is in the cache now, whichever load it is
// of: that it is there says that nobody has invalidated it.
func (f *flight[T]) tellCached(callers []*caller[T], from Source) []*caller[T] {
	raw, err := f.g.get(f.t.value)
	switch {
	case errors.Is(err, redis.Nil):
		return callers
	case err != nil:
		return f.unavailable(callers, err)
	}
	// What a client's own cache still has is not news.
	v := f.g.judgeNow(f.t, raw, false)
	if !v.there || v.look.Seen == f.look.Seen {
		return callers
	}
	return f.tellValue(callers, v.env, v.age, from)
}

// get reads a key for whom no caller's ctx can be asked, since there are many.
func (g *Group[T]) get(key string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engine.CallBound)
	defer cancel()
	return g.rdb.Get(ctx, key).Result()
}

// tellRecord serves callers with what the load of a token came to.
func (f *flight[T]) tellRecord(callers []*caller[T], token uint64) []*caller[T] {
	raw, err := f.g.get(f.t.landed())
	switch {
	case errors.Is(err, redis.Nil):
		return callers
	case err != nil:
		return f.unavailable(callers, err)
	}
	of, r, err := engine.ParseRecord(raw)
	if err != nil || of != token || r.Envelope == "" {
		return callers
	}
	e, err := envelope.Decode(r.Envelope)
	if err != nil || !f.acceptable(e) {
		f.g.undecodable(f.t, errors.Join(err, errNoValue))
		return callers
	}
	return f.tellValue(callers, e, 0, Shared)
}

// unavailable tells callers that the result could not be read; under LoadLocally
// they start anew, and load.
func (f *flight[T]) unavailable(callers []*caller[T], err error) []*caller[T] {
	if f.g.cfg.OnUnavailable == LoadLocally {
		return callers
	}
	tell(callers, outcome[T]{errs: []error{leasehold.ErrUnavailable, err}})
	return nil
}

// judgeNow is judge at the time of the last reply, which there has been.
func (g *Group[T]) judgeNow(t target, raw string, sure bool) view {
	now, err := g.m.ServerTime(context.Background())
	if err != nil {
		now = 0
	}
	return g.judge(t, raw, now, sure)
}
