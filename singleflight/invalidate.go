package singleflight

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// invalidateFor is how long Invalidate tries.
const invalidateFor = 3 * time.Second

// Invalidate drops what is cached of keys, remembered errors too, and ends the
// right of loads that run to store their results: whoever asks after it returned
// gets nothing that was loaded before. Those who waited for such a load already
// get its result or a newer one. With client-side caching in go-redis this holds
// in other processes once the server's message has arrived there, some ms later.
//
// One round trip, however many keys (in a Cluster one for each node), tried again
// for up to 3 s. When ctx ends, Invalidate returns at once.
//
// Where it returns an error, the keys that the error names may have been dropped
// or not: repeat it. Errors: leasehold.ErrUnavailable, leasehold.ErrClosed, ctx's
// own.
func (g *Group[T]) Invalidate(ctx context.Context, keys ...string) error {
	const op = "invalidate"
	var open []target
	seen := map[string]bool{}
	for _, key := range keys {
		t, err := g.target(op, key)
		if err != nil {
			return err
		}
		if !seen[key] {
			seen[key] = true
			open = append(open, t)
		}
	}
	till := time.Now().Add(invalidateFor)
	for n := 0; len(open) > 0; n++ {
		if err := ctx.Err(); err != nil {
			return failAll(op, open, err, leasehold.ErrUnavailable)
		}
		done := make(chan []dropped, 1)
		g.mu.Lock()
		if g.closed.Load() {
			g.mu.Unlock()
			return failAll(op, open, leasehold.ErrClosed)
		}
		g.active.Go(func() { done <- g.drop(ctx, open) })
		g.mu.Unlock()
		var results []dropped
		select {
		case results = <-done:
		case <-ctx.Done():
			return failAll(op, open, ctx.Err(), leasehold.ErrUnavailable)
		}
		var again []target
		var errs []error
		for _, d := range results {
			switch {
			case d.err == nil:
			case engine.Classify(d.err) != engine.Refused && time.Now().Before(till):
				again = append(again, d.t)
			default:
				errs = append(errs, engine.Fail(pkg, op, d.t.Label, leasehold.ErrUnavailable, d.err))
			}
		}
		if len(errs) > 0 {
			for _, t := range again {
				errs = append(errs, engine.Fail(pkg, op, t.Label, leasehold.ErrUnavailable))
			}
			return errors.Join(errs...)
		}
		if open = again; len(open) > 0 {
			pause := 8 * time.Millisecond << min(n, 5)
			select {
			case <-time.After(pause/2 + rand.N(pause)):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

type dropped struct {
	t   target
	err error
}

// drop sends one invalidation of each key.
func (g *Group[T]) drop(ctx context.Context, all []target) []dropped {
	eng := g.m.Engine()
	results := make([]dropped, len(all))
	calls := make([]*engine.Call, len(all))
	for i, t := range all {
		results[i].t = t
		res := engine.NewFlight(t.Resource)
		calls[i] = res.Invalidate(eng.Node(res))
		calls[i].Done = func(v []int64, err error) {
			var us int64
			if err == nil {
				us, err = engine.ParseInvalidate(v)
			}
			if results[i].err = err; err == nil {
				g.floors.raise(t.value, us)
				g.mu.Lock()
				delete(g.locals, t.key) // who comes now doesn't join what was begun before
				g.mu.Unlock()
			}
		}
	}
	eng.Send(context.WithoutCancel(ctx), calls)
	return results
}

func failAll(op string, all []target, errs ...error) error {
	var failed []error
	for _, t := range all {
		failed = append(failed, engine.Fail(pkg, op, t.Label, errs...))
	}
	return errors.Join(failed...)
}
