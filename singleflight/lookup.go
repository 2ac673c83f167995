package singleflight

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// verdict says what a look-up in the cache means for a call.
type verdict int

const (
	miss         verdict = iota // the call has to wait or to load
	hit                         // the call is served
	hitAndEarly                 // the call is served; the value should be rebuilt before its TTL is over
	hitAndStale                 // the call is served a stale value, which should be rebuilt
	unobtainable                // Redis did not answer
)

// look is the result of a look-up in the cache, for one call.
type look[T any] struct {
	verdict  verdict
	result   Result[T]      // what a hit returns
	errs     []error        // or what is returned instead
	rejected loads.Rejected // unless it is a hit: the entry that was found, which a load is to replace
	stale    *Result[T]     // of a miss: a stale value that may still be served; nil: none
}

// lookUp reads the cache and judges the entry.
func (g *Group[T]) lookUp(ctx context.Context, t target) look[T] {
	raw, e, errs := g.read(ctx, t)
	if errs != nil {
		return g.unobtained(ctx, t.key, errs)
	}
	return g.consider(ctx, t, raw, e)
}

// read reads the cache, with one GET.
func (g *Group[T]) read(ctx context.Context, t target) (raw string, e entry, errs []error) {
	if err := ctx.Err(); err != nil {
		return "", entry{}, []error{err}
	}
	client := g.manager.Client()
	bounded, cancel := client.WithBound(ctx)
	defer cancel()
	var now int64
	err := client.Reachable(ctx, t.value)
	if err == nil {
		now, err = client.Time(bounded, t.value)
	}
	if err == nil {
		raw, err = client.Get(bounded, t.value)
	}
	g.reached(t, err)
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", entry{}, unobtainableBecause(ctx, err)
	}
	e = g.judge(t, raw, now, false)
	g.seen(t, raw, e)
	return raw, e, nil
}

// unobtainableBecause returns the errors of a call whose look-up failed with err.
func unobtainableBecause(ctx context.Context, err error) []error {
	return []error{ctx.Err(), leasehold.ErrUnavailable, boundAsSlow(ctx, err)}
}

// boundAsSlow returns err. If err is from the deadline that WithBound added to ctx, it returns
// call.ErrSlow instead, because the caller must not take that deadline for its own.
func boundAsSlow(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return call.ErrSlow
	}
	return err
}

// lookUpMany is lookUp for several keys, in one round trip per server. It asks the servers at
// the same time, and none about keys that it finds in memory.
func (g *Group[T]) lookUpMany(ctx context.Context, targets []target) []look[T] {
	all := make([]look[T], len(targets))
	if err := ctx.Err(); err != nil {
		for i := range all {
			all[i] = look[T]{verdict: unobtainable, errs: []error{err}}
		}
		return all
	}
	var names []string
	var asked []int // indices of targets, in the order of names
	for i, t := range targets {
		if g.near != nil {
			if seen, ok := g.inMemory(ctx, t.key); ok {
				all[i] = seen
				continue
			}
		}
		names, asked = append(names, t.value), append(asked, i)
	}
	if len(names) == 0 {
		return all
	}
	client := g.manager.Client()
	bounded, cancel := client.WithBound(ctx)
	defer cancel()
	client.ByNode(names, func(which []int) {
		some := make([]string, len(which))
		for n, i := range which {
			some[n], which[n] = names[i], asked[i]
		}
		var now int64
		err := client.Reachable(ctx, some[0])
		if err == nil {
			now, err = client.Time(bounded, some[0])
		}
		var found []call.Found
		if err == nil {
			found = client.GetMany(bounded, some)
		}
		for n, i := range which {
			raw, err := "", err
			if err == nil {
				raw, err = found[n].Text, found[n].Err
			}
			g.reached(targets[i], err)
			if err != nil && !errors.Is(err, redis.Nil) {
				all[i] = g.unobtained(ctx, targets[i].key, unobtainableBecause(ctx, err))
				continue
			}
			e := g.judge(targets[i], raw, now, false)
			g.seen(targets[i], raw, e)
			all[i] = g.consider(ctx, targets[i], raw, e)
		}
	})
	return all
}

// consider decides what the entry in raw means for a call.
func (g *Group[T]) consider(ctx context.Context, t target, raw string, e entry) look[T] {
	switch {
	case e.fresh() && e.env.Kind == envelope.NotFound:
		return look[T]{verdict: hit, result: Result[T]{Source: Cached}, errs: []error{ErrNotFound}}
	case e.fresh():
		r, ok := g.serve(ctx, t, e, Cached)
		switch {
		case !ok && ctx.Err() != nil:
			return look[T]{verdict: unobtainable, errs: []error{ctx.Err()}}
		case !ok:
			e.rejected.Value = sum(raw)
		case g.refreshesEarly(e):
			return look[T]{verdict: hitAndEarly, result: r, rejected: e.rejected}
		default:
			return look[T]{verdict: hit, result: r}
		}
	case e.stale(max(g.cfg.StaleFor, g.cfg.StaleIfError)):
		r, ok := g.serve(ctx, t, e, Stale)
		switch {
		case !ok && ctx.Err() != nil:
			return look[T]{verdict: unobtainable, errs: []error{ctx.Err()}}
		case !ok:
			e.rejected.Value = sum(raw)
		case e.stale(g.cfg.StaleFor) && g.cfg.SoftTimeout == 0:
			return look[T]{verdict: hitAndStale, result: r, rejected: e.rejected}
		default:
			old := r // a copy, so that r is allocated only here
			return look[T]{rejected: e.rejected, stale: &old}
		}
	}
	return look[T]{rejected: e.rejected}
}

// serve decodes the value of an entry. It returns false if the bytes cannot be decoded as a T,
// or if ctx ended before they were. In the first case the scripts must be told the sum of these
// bytes.
func (g *Group[T]) serve(ctx context.Context, t target, e entry, from Source) (Result[T], bool) {
	value, err := g.decode(ctx, e.env.Payload)
	if err != nil {
		if ctx.Err() == nil {
			g.undecodable(ctx, t, err)
		}
		return Result[T]{}, false
	}
	return Result[T]{Value: value, Source: from, Age: e.age}, true
}

// serverTime returns the server's present time, for work that no caller's ctx bounds. It asks
// the server only if it does not know the time yet. After an error the time is 0.
func (g *Group[T]) serverTime(t target) (int64, error) {
	ctx, cancel := g.manager.Client().WithBound(context.Background())
	defer cancel()
	now, err := g.manager.Client().Time(ctx, t.value)
	return now, boundAsSlow(context.Background(), err)
}

// get reads a key for many callers. No caller's ctx bounds it.
func (g *Group[T]) get(key string) (string, error) {
	ctx, cancel := g.manager.Client().WithBound(context.Background())
	defer cancel()
	text, err := g.manager.Client().Get(ctx, key)
	return text, boundAsSlow(context.Background(), err)
}
