package singleflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/nested"
)

const (
	// dropTriesFor is how long Invalidate and Put try.
	dropTriesFor = 3 * time.Second
	// dropBound is the longest time after which they return, unless they wait for processes with
	// copies in memory.
	dropBound = dropTriesFor + call.Bound
	// putArrivesWithin is how long a put may take to arrive. One that arrives later does
	// nothing.
	putArrivesWithin = 5 * time.Second
)

// Invalidate drops the cached values and the remembered errors of keys, in all schemas. Loads
// that are running may not store their results any more. A caller that asks after Invalidate
// returned gets nothing that was loaded before. A caller that already waited for such a load gets
// its result, or a newer one. With go-redis's client-side caching, all this holds in another
// process once the server's message has arrived there, some ms later.
//
// If processes serve keys from their memory (Config.NearFor), Invalidate waits until each of
// them has dropped its copy, or may not serve it any more: at most the longest NearFor.
//
// If ctx ends or the handle is closed, Invalidate returns at once. Otherwise it returns within
// 6 s, plus that NearFor. After an error, each key that it names may have been dropped or not, and
// copies in memory may be served for up to NearFor: call Invalidate again. If one of the keys is
// bad, Invalidate returns leasehold.ErrInvalid and does nothing else. Its other errors are
// leasehold.ErrUnavailable, leasehold.ErrClosed and ctx's own. For several keys they are in a
// *[KeysError].
//
// Invalidate costs one round trip for any number of keys, in a Cluster one per node. Keys
// with other schemas in use cost a second one, and so do keys that are served from memory.
func (g *Group[T]) Invalidate(ctx context.Context, keys ...string) error {
	call.NeedCtx(ctx)
	const op = "invalidate"
	var drops []*drop
	seen := map[string]bool{}
	for _, key := range keys {
		t, err := g.target(op, key)
		if err != nil {
			return err
		}
		if !seen[key] {
			seen[key] = true
			drops = append(drops, &drop{target: t})
		}
	}
	return g.dropAll(ctx, op, drops)
}

// Put stores v as if it had just been loaded. A caller that asks after Put returned gets v or
// something newer. Otherwise Put acts as [Group.Invalidate] does, in all schemas, and has its
// bounds. Of two Puts the later one stays, by the server's clock.
//
// If Config.TTLFor says not to store v, or v is larger than Config.MaxValueBytes, Put only
// invalidates and returns [ErrNotStored], in the second case with [ErrTooLarge].
//
// After ctx's error or leasehold.ErrUnavailable, v may have been stored or not, or may still be
// stored within 5 s: call Put again. If ctx ended while v was being encoded, that may go on and
// read v. Other errors are leasehold.ErrInvalid for a bad key or a v
// that cannot be encoded, leasehold.ErrClosed, and an error for a panic of Config.TTLFor.
//
// Put costs one round trip, and a second one if other schemas of key are in use or key is
// served from memory.
func (g *Group[T]) Put(ctx context.Context, key string, v T) error {
	call.NeedCtx(ctx)
	const op = "put"
	t, err := g.target(op, key)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return call.Fail(pkg, op, t.Label(), err)
	}
	if g.closed.Load() {
		return call.Fail(pkg, op, t.Label(), leasehold.ErrClosed)
	}
	data, ttl, errs := g.prepare(ctx, key, v)
	if errs != nil {
		return call.Fail(pkg, op, t.Label(), errs...)
	}
	d := &drop{target: t}
	var unstored []error
	switch {
	case len(data) > g.cfg.MaxValueBytes:
		unstored = []error{ErrNotStored, fmt.Errorf("%w: it has %d bytes", ErrTooLarge, len(data))}
		g.counts.tooLarge.Add(1)
	case ttl < 0:
		unstored = []error{ErrNotStored}
	default:
		env := envelope.Envelope{Kind: envelope.Value, Schema: g.cfg.Schema, Payload: data, Fresh: ttl, Kept: g.kept(ttl)}
		prefix, suffix := env.Encode()
		d.put = &loads.Result{Prefix: prefix, Suffix: suffix, Keep: env.Kept}
	}
	if err := g.dropAll(ctx, op, []*drop{d}); err != nil || unstored == nil {
		return err
	}
	return call.Fail(pkg, op, t.Label(), unstored...)
}

// prepare encodes a value for Put and asks TTLFor about it. They may block, so it ends with ctx and with the handle.
func (g *Group[T]) prepare(ctx context.Context, key string, v T) (data string, ttl time.Duration, errs []error) {
	var p part[T]
	encoded := false
	ended, left := contain(ctx, g.manager.Closing(), func(c *callersCode) {
		if p.data, p.encoding = g.encode(c, v); p.encoding != nil {
			return
		}
		encoded = true
		c.runs = "TTLFor"
		p.ttl = g.ttl(key, v)
	})
	switch {
	case left != nil:
		return "", 0, []error{left}
	case ended != nil && encoded:
		return "", 0, []error{ended}
	case !encoded:
		return "", 0, []error{leasehold.ErrInvalid, cmp.Or(ended, p.encoding)}
	}
	return p.data, p.ttl, nil
}

// dropAll drops keys. It tries several times, and each try sends what is left to do.
func (g *Group[T]) dropAll(ctx context.Context, op string, open []*drop) error {
	if len(open) == 0 {
		return nil
	}
	ctx = nested.Calm{Context: ctx}
	if err := ctx.Err(); err != nil {
		return failDrops(op, open, err)
	}
	ended := make(chan struct{})
	g.mu.Lock()
	if g.closed.Load() {
		g.mu.Unlock()
		return failDrops(op, open, leasehold.ErrClosed)
	}
	stop := make(chan struct{})
	g.active.Go(func() {
		defer close(ended)
		names := make([]string, len(open))
		for i, d := range open {
			names[i] = d.value
		}
		// Each server has tries of its own, so a server that hangs delays no other's keys.
		g.manager.Client().ByNode(names, func(which []int) {
			some := make([]*drop, len(which))
			for n, i := range which {
				some[n] = open[i]
			}
			g.tryDrops(context.WithoutCancel(ctx), some, stop)
			g.awaitReaders(some, stop)
		})
	})
	g.mu.Unlock()
	defer close(stop)
	bound := time.NewTimer(dropBound)
	defer bound.Stop()
	for {
		select {
		case <-ended:
			for _, d := range open {
				outcome := leasehold.OutcomeOK
				if !d.done.Load() {
					outcome = leasehold.OutcomeUnavailable
				}
				g.observe(leasehold.Event{Kind: leasehold.EventInvalidated, Outcome: outcome})
			}
			return failDrops(op, open)
		case <-ctx.Done():
			return failDrops(op, open, ctx.Err(), leasehold.ErrUnavailable)
		case <-g.manager.Closing():
			return failDrops(op, open, leasehold.ErrClosed)
		case <-bound.C:
			// Read leases bound the wait for processes with copies in memory.
			if slices.ContainsFunc(open, func(d *drop) bool { return !d.dropped.Load() }) {
				return failDrops(op, open, leasehold.ErrUnavailable, errDropSlow)
			}
		}
	}
}

var errDropSlow = fmt.Errorf("no answer within %v", dropBound)

// failDrops returns the error for the keys that are not done; nil if all are. errs are the
// errors of those that Redis has not answered; none: each has an error of its own. A call for
// one key has a plain error.
func failDrops(op string, all []*drop, errs ...error) error {
	failed := map[string]error{}
	for _, d := range all {
		of := errs
		switch {
		case d.done.Load():
			continue
		case d.dropped.Load() && len(errs) > 0: // Redis has answered, so errs[0] alone is right
			of = []error{errs[0], errReaders}
		case d.dropped.Load():
			of = []error{leasehold.ErrClosed, errReaders}
		case len(errs) == 0:
			of = []error{leasehold.ErrUnavailable, d.err}
		}
		failed[d.key] = call.Fail(pkg, op, d.Label(), of...)
	}
	if len(all) == 1 {
		return failed[all[0].key]
	}
	return failedKeys(failed)
}
