package singleflight

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/envelope"
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
	results := make([]dropped, len(all))
	calls := make([]*engine.Call, len(all))
	for i, t := range all {
		results[i].t = t
		res := engine.NewFlight(t.Resource)
		calls[i] = res.Invalidate(g.eng.Node(res))
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
	g.eng.Send(context.WithoutCancel(ctx), calls)
	return results
}

func failAll(op string, all []target, errs ...error) error {
	var failed []error
	for _, t := range all {
		failed = append(failed, engine.Fail(pkg, op, t.Label, errs...))
	}
	return errors.Join(failed...)
}

// Inspect says what is known of key in the whole fleet. One round trip; it
// changes nothing. Errors: leasehold.ErrUnavailable, leasehold.ErrClosed, ctx's
// own.
func (g *Group[T]) Inspect(ctx context.Context, key string) (State, error) {
	const op = "inspect"
	t, err := g.target(op, key)
	if err != nil {
		return State{}, err
	}
	if err := ctx.Err(); err != nil {
		return State{}, engine.Fail(pkg, op, t.Label, err, leasehold.ErrUnavailable)
	}
	type answer struct {
		s   engine.FlightState
		err error
	}
	answers := make(chan answer, 1)
	g.mu.Lock()
	if g.closed.Load() {
		g.mu.Unlock()
		return State{}, engine.Fail(pkg, op, t.Label, leasehold.ErrClosed)
	}
	g.active.Go(func() {
		call := engine.NewFlight(t.Resource).Inspect()
		v, err := g.eng.Do(ctx, call)
		var s engine.FlightState
		if err == nil {
			s, err = engine.ParseInspect(v, call.Text)
		}
		answers <- answer{s, err}
	})
	g.mu.Unlock()
	select {
	case a := <-answers:
		if a.err != nil {
			return State{}, engine.Fail(pkg, op, t.Label, ctx.Err(), leasehold.ErrUnavailable, a.err)
		}
		return g.state(a.s), nil
	case <-ctx.Done():
		return State{}, engine.Fail(pkg, op, t.Label, ctx.Err(), leasehold.ErrUnavailable)
	}
}

func (g *Group[T]) state(s engine.FlightState) State {
	since := func(us int64) time.Duration { return max(0, time.Duration(s.Now-us)*time.Microsecond) }
	state := State{Waiting: s.Waiting, Invalidated: s.Aside, Bytes: s.Bytes, KeptFor: s.Kept}
	if s.LeaseEnds > 0 {
		state.Loading, state.LoadID, state.LeaseEndsIn, state.LoadingFor = true, s.Loader, s.LeaseEnds, since(s.Since)
	}
	if e, err := envelope.Header(s.Head); err == nil && s.Bytes > 0 && e.Schema == g.cfg.Schema {
		state.Cached, state.NotFound = true, e.Kind == envelope.NotFound
		state.Age = since(e.Published)
		state.FreshFor = max(0, e.Fresh-state.Age)
	}
	if e, err := envelope.Decode(s.Failure); err == nil && isFailure(e.Kind) {
		state.Failure, state.FailedFor = e.Payload, s.Failed
	}
	return state
}

// floors keeps when this handle last invalidated which key, for clients that
// cache by themselves: what such a cache still has of before is refused here.
type floors struct {
	life time.Duration // longer than any value lives

	mu  sync.RWMutex
	all map[string]floor
}

type floor struct {
	us   int64
	till time.Time
}

func newFloors(life time.Duration) *floors { return &floors{life: life, all: map[string]floor{}} }

// cachesLocally reports whether a client may answer a GET without asking.
func cachesLocally(rdb redis.UniversalClient) bool {
	switch c := rdb.(type) {
	case *redis.Client:
		return c.Options().ClientSideCacheConfig != nil || c.Options().ClientSideCache != nil
	case *redis.ClusterClient:
		return false // go-redis has no client-side caching there
	}
	return true
}

func (f *floors) refuses(key string, published int64) bool {
	if f == nil {
		return false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	at, ok := f.all[key]
	return ok && published <= at.us
}

func (f *floors) raise(key string, us int64) {
	if f == nil {
		return
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) > 1000 && rand.N(len(f.all)) < 10 {
		for k, old := range f.all {
			if now.After(old.till) {
				delete(f.all, k)
			}
		}
	}
	f.all[key] = floor{us: max(us, f.all[key].us), till: now.Add(f.life)} // replies may come out of order
}
