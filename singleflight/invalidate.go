package singleflight

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// invalidateFor is how long Invalidate tries.
const invalidateFor = 3 * time.Second

// Invalidate drops what is cached of keys, remembered errors too, and ends the
// right of loads that run to store their results: a caller that asks after it returned
// gets nothing that was loaded before. The callers that waited for such a load already
// get its result or a newer one. With client-side caching in go-redis this holds
// in other processes once the server's message has arrived there, some ms later.
//
// One round trip, however many keys (in a Cluster one for each node), tried again
// for up to 3 s. When ctx ends, Invalidate returns at once.
//
// Where it returns an error, the keys that the error names may have been dropped
// or not: repeat it. Errors: leasehold.ErrInvalid for a
// bad key; leasehold.ErrUnavailable, leasehold.ErrClosed, ctx's own.
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
		done := make(chan []invalidationTry, 1)
		g.mu.Lock()
		if g.closed.Load() {
			g.mu.Unlock()
			return failAll(op, open, leasehold.ErrClosed)
		}
		g.active.Go(func() { done <- g.sendInvalidations(ctx, open) })
		g.mu.Unlock()
		var tries []invalidationTry
		select {
		case tries = <-done:
		case <-ctx.Done():
			return failAll(op, open, ctx.Err(), leasehold.ErrUnavailable)
		}
		var again []target
		var errs []error
		for _, try := range tries {
			switch {
			case try.err == nil:
				g.observe(leasehold.Event{Kind: leasehold.EventInvalidated, Outcome: leasehold.OutcomeOK})
			case call.Classify(try.err) != call.Refused && time.Now().Before(till):
				again = append(again, try.target)
			default:
				g.observe(leasehold.Event{Kind: leasehold.EventInvalidated, Outcome: leasehold.OutcomeUnavailable})
				errs = append(errs, call.Fail(pkg, op, try.Label, leasehold.ErrUnavailable, try.err))
			}
		}
		if len(errs) > 0 {
			for _, t := range again {
				errs = append(errs, call.Fail(pkg, op, t.Label, leasehold.ErrUnavailable))
			}
			return errors.Join(errs...)
		}
		if open = again; len(open) > 0 {
			select {
			case <-time.After(call.Backoff(n + 1)):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// invalidationTry is what became of one try to invalidate a key.
type invalidationTry struct {
	target
	err error
}

// sendInvalidations sends one invalidation of each key.
func (g *Group[T]) sendInvalidations(ctx context.Context, all []target) []invalidationTry {
	tries := make([]invalidationTry, len(all))
	calls := make([]*call.Call, len(all))
	for i, t := range all {
		tries[i].target = t
		calls[i] = loads.NewResource(t.Resource).Invalidate()
		calls[i].Done = func(v []int64, err error) {
			var us int64
			if err == nil {
				us, err = loads.ReadInvalidate(v)
			}
			if tries[i].err = err; err != nil {
				return
			}
			g.invalidatedAt.raise(t.value, us)
			g.mu.Lock()
			delete(g.localFlights, t.key) // a newcomer must not join what was begun before
			g.mu.Unlock()
		}
	}
	g.manager.Client().Send(context.WithoutCancel(ctx), calls)
	return tries
}

func failAll(op string, all []target, errs ...error) error {
	var failed []error
	for _, t := range all {
		failed = append(failed, call.Fail(pkg, op, t.Label, errs...))
	}
	return errors.Join(failed...)
}
