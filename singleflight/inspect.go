package singleflight

import (
	"context"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// Inspect returns the state of key in the whole fleet. It changes nothing.
//
// If ctx ends, Inspect returns at once. Otherwise it returns within 3 s plus the client's
// WriteTimeout and ReadTimeout. The first call of a Group asks for the server's version before
// that, for up to 8 s.
//
// Its errors are leasehold.ErrInvalid for a bad key, leasehold.ErrUnavailable,
// leasehold.ErrClosed and ctx's own. It costs one round trip.
func (g *Group[T]) Inspect(ctx context.Context, key string) (State, error) {
	call.NeedCtx(ctx)
	const op = "inspect"
	t, err := g.target(op, key)
	if err != nil {
		return State{}, err
	}
	if err := ctx.Err(); err != nil {
		return State{}, call.Fail(pkg, op, t.Label, err)
	}
	type answer struct {
		s   loads.State
		err error
	}
	answers := make(chan answer, 1)
	g.mu.Lock()
	if g.closed.Load() {
		g.mu.Unlock()
		return State{}, call.Fail(pkg, op, t.Label, leasehold.ErrClosed)
	}
	g.active.Go(func() {
		one := g.resource(t).Inspect()
		var v []int64
		err := g.manager.Client().Reachable(ctx, t.value)
		if err == nil {
			v, err = g.manager.Client().Do(ctx, one)
		}
		var s loads.State
		if err == nil {
			s, err = loads.ReadInspect(v, one.Text)
		}
		answers <- answer{s, err}
	})
	g.mu.Unlock()
	select {
	case a := <-answers:
		if a.err != nil {
			return State{}, call.Fail(pkg, op, t.Label, ctx.Err(), leasehold.ErrUnavailable, a.err)
		}
		return g.state(a.s), nil
	case <-ctx.Done():
		return State{}, call.Fail(pkg, op, t.Label, ctx.Err(), leasehold.ErrUnavailable)
	}
}

// resource returns the cached value of t in this group's schema.
func (g *Group[T]) resource(t target) *loads.Resource {
	return loads.NewResource(t.Resource, g.cfg.Schema)
}

func (g *Group[T]) state(s loads.State) State {
	since := func(us int64) time.Duration { return max(0, time.Duration(s.Now-us)*time.Microsecond) }
	state := State{Waiting: s.Waiting, Invalidated: s.Invalidated, Bytes: s.Bytes, KeptFor: s.Kept, Near: s.Near}
	if s.LeaseEnds > 0 {
		state.Loading, state.LoadID, state.LeaseEndsIn, state.LoadingFor = true, s.Loader, s.LeaseEnds, since(s.Since)
		state.LoadLabel = s.LoaderLabel
	}
	if e, err := envelope.Header(s.Head); err == nil && s.Bytes > 0 && e.Schema == g.cfg.Schema {
		state.Cached, state.NotFound = true, e.Kind == envelope.NotFound
		state.Age = since(e.Published)
		state.FreshFor = max(0, e.Fresh-state.Age)
	}
	if e, err := envelope.Decode(s.Failure); err == nil && isFailure(e.Kind) {
		state.Failure, _, _ = strings.Cut(e.Payload, separator)
		state.FailedFor = s.Failed
	}
	return state
}
