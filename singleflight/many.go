package singleflight

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// DoMany is [Group.Do] for several keys: what is not cached, and nobody else
// loads, load is called for once; the rest is waited for. Duplicate keys count
// once. A key that load's map leaves out is [ErrNotFound]. load may be called
// again for keys whose loader elsewhere died. With MaxLoads a call of load takes
// one permit.
//
// All keys are looked up in one round trip, and what to do about those that are
// missing is settled in a second one (in a Cluster one for each node). What this
// process loads is published before the others are waited for, each by itself: a
// key that is invalidated meanwhile doesn't keep its neighbours from being
// stored.
//
// It returns what was found, and the errors of all other keys joined; each names
// its key.
func (g *Group[T]) DoMany(ctx context.Context, all []string, load func(ctx context.Context, missing []string) (map[string]T, error)) (map[string]T, error) {
	const op = "do many"
	var wants []*want[T]
	seen := map[string]bool{}
	for _, key := range all {
		t, err := g.target(op, key)
		if err != nil {
			return nil, err
		}
		if !seen[key] {
			seen[key] = true
			wants = append(wants, &want[T]{g: g, t: t, ctx: ctx, many: load})
		}
	}
	if g.closed.Load() {
		return nil, engine.Fail(pkg, op, keys.Escape(g.cfg.Name), leasehold.ErrClosed)
	}
	b := &batch[T]{g: g, ctx: ctx, load: load, found: make(map[string]T, len(wants))}
	b.run(wants)
	return b.found, errors.Join(b.errs...)
}

// batch is one DoMany.
type batch[T any] struct {
	g    *Group[T]
	ctx  context.Context
	load manyFn[T]

	found map[string]T
	errs  []error
}

func (b *batch[T]) done(w *want[T], r Result[T], errs []error) {
	if errs != nil {
		b.g.counts.errors.Add(1)
		b.errs = append(b.errs, engine.Fail(pkg, "do many", w.t.Label, errs...))
		return
	}
	b.g.counts.served(r.Source)
	b.found[w.t.key] = r.Value
}

func (b *batch[T]) run(wants []*want[T]) {
	g := b.g
	var last error
	for round := 0; len(wants) > 0; round++ {
		missing, joiners, locals := b.lookUp(wants)
		var open []*want[T]
		var callers []*caller[T]
		for _, part := range []struct {
			wants []*want[T]
			join  func() ([]*caller[T], []error)
		}{
			{missing, func() ([]*caller[T], []error) { return g.join(joiners, b.ctx, b.load) }},
			{locals, func() ([]*caller[T], []error) { return g.joinLocally(targets(locals), b.ctx, b.load) }},
		} {
			if len(part.wants) == 0 {
				continue
			}
			cs, errs := part.join()
			if errs != nil {
				for _, w := range part.wants {
					b.done(w, Result[T]{}, errs)
				}
				continue
			}
			open, callers = append(open, part.wants...), append(callers, cs...)
		}
		if wants, last = b.await(open, callers); round == rounds-1 {
			for _, w := range wants {
				b.done(w, Result[T]{}, []error{last})
			}
			return
		}
	}
}

func targets[T any](wants []*want[T]) []target {
	all := make([]target, len(wants))
	for i, w := range wants {
		all[i] = w.t
	}
	return all
}

// lookUp serves from the cache what it can, and returns what is to be had by
// joining flights: with Redis, or without.
func (b *batch[T]) lookUp(wants []*want[T]) (missing []*want[T], joiners []joiner[T], locals []*want[T]) {
	g := b.g
	var stale, early []joiner[T]
	for i, raw := range g.lookUpMany(b.ctx, wants) {
		w := wants[i]
		if raw.errs != nil {
			if g.cfg.OnUnavailable == LoadLocally && b.ctx.Err() == nil {
				locals = append(locals, w)
			} else {
				b.done(w, Result[T]{}, raw.errs)
			}
			continue
		}
		switch r, v, how, errs := w.judged(raw.raw, raw.view); how {
		case served:
			b.done(w, r, errs)
		case servedStale:
			stale = append(stale, joiner[T]{t: w.t, look: v.look})
			b.done(w, r, nil)
		case servedEarly:
			early = append(early, joiner[T]{t: w.t, look: v.look})
			b.done(w, r, nil)
		default:
			missing = append(missing, w)
			joiners = append(joiners, joiner[T]{t: w.t, look: v.look})
		}
	}
	g.refresh(stale, b.ctx, b.load, false)
	g.refresh(early, b.ctx, b.load, true)
	return missing, joiners, locals
}

// looked is what a GET showed.
type looked struct {
	raw  string
	view view
	errs []error
}

// lookUpMany is lookUp for several keys, in one round trip.
func (g *Group[T]) lookUpMany(ctx context.Context, wants []*want[T]) []looked {
	all := make([]looked, len(wants))
	failAll := func(errs ...error) []looked {
		for i := range all {
			all[i].errs = errs
		}
		return all
	}
	if err := ctx.Err(); err != nil {
		return failAll(err, leasehold.ErrUnavailable)
	}
	now, err := g.m.ServerTime(ctx)
	if err != nil {
		return failAll(ctx.Err(), leasehold.ErrUnavailable, err)
	}
	cmds := make([]*redis.StringCmd, len(wants))
	_, _ = g.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own outcome
		for i, w := range wants {
			cmds[i] = pipe.Get(ctx, w.t.value)
		}
		return nil
	})
	for i, cmd := range cmds {
		raw, err := cmd.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			all[i].errs = []error{ctx.Err(), leasehold.ErrUnavailable, err}
			continue
		}
		all[i].raw, all[i].view = raw, g.judge(wants[i].t, raw, now, false)
	}
	return all
}

// await waits for all callers, and returns whose keys have to be looked at anew.
func (b *batch[T]) await(wants []*want[T], callers []*caller[T]) (again []*want[T], why error) {
	left := map[*caller[T]]bool{}
	for _, c := range callers {
		left[c] = true
	}
	// Also where a loader's panic is raised again here.
	defer func() {
		for c := range left {
			b.g.leave(c, false)
		}
	}()
	var soft <-chan time.Time
	if b.g.cfg.SoftTimeout > 0 {
		timer := time.NewTimer(b.g.cfg.SoftTimeout)
		defer timer.Stop()
		soft = timer.C
	}
	for i, c := range callers {
		w := wants[i]
		// Not for who has been served a stale value while another was waited for.
		for waiting := left[c]; waiting; {
			waiting = false
			select {
			case o := <-c.got:
				delete(left, c)
				r, errs, anew := b.g.take(w.t, o)
				switch {
				case anew != nil:
					again, why = append(again, w), anew
				case errs != nil && w.staleInstead(errs):
					b.done(w, w.old, nil)
				default:
					b.done(w, r, errs)
				}
			case <-soft:
				soft, waiting = nil, true
				b.overdue(wants[i:], callers[i:], left)
				if !left[c] {
					waiting = false
				}
			case <-b.ctx.Done():
				b.done(w, Result[T]{}, []error{b.ctx.Err()})
			}
			if !left[c] {
				break
			}
		}
	}
	return again, why
}

// overdue serves those who have a stale value and no other yet.
func (b *batch[T]) overdue(wants []*want[T], callers []*caller[T], left map[*caller[T]]bool) {
	for i, c := range callers {
		if w := wants[i]; left[c] && w.stale && len(c.got) == 0 {
			b.g.leave(c, true)
			delete(left, c)
			b.done(w, w.old, nil)
		}
	}
}
