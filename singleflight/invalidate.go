package singleflight

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
)

const (
	// dropTriesFor is how long Invalidate and Put try.
	dropTriesFor = 3 * time.Second
	// dropBound is when they return at the latest.
	dropBound = dropTriesFor + call.Bound
	// putArrivesWithin is how long a put may take to arrive: after that it does
	// nothing.
	putArrivesWithin = 5 * time.Second
)

// Invalidate drops what is cached of keys, remembered errors too, and ends the
// right of loads that run to store their results: a caller that asks after it returned
// gets nothing that was loaded before. The callers that waited for such a load already
// get its result or a newer one. It reaches all schemas. With client-side caching in
// go-redis this holds in other processes once the server's message has arrived there,
// some ms later.
//
// One round trip, however many keys (in a Cluster one per node), and a second one for
// keys of which other schemas are in use; tried again for up to 3 s. It returns within
// 6 s, and at once when ctx ends.
//
// Where it returns an error, the keys that the error names may have been dropped
// or not: repeat it. Errors: leasehold.ErrInvalid for a
// bad key; leasehold.ErrUnavailable, leasehold.ErrClosed, ctx's own.
func (g *Group[T]) Invalidate(ctx context.Context, keys ...string) error {
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

// Put stores v as if it had just been loaded: a caller that asks after it returned gets
// v or something newer. What was cached of key is dropped in all schemas, remembered
// errors too, and a load that runs may not store its result over v; the callers that
// waited for it already get that result. Of two Puts the later one stays, by the
// server's clock.
//
// Where Config.TTLFor says not to store v, or v is larger than Config.MaxValueBytes,
// Put only invalidates, and returns [ErrNotStored], with [ErrTooLarge] in the latter
// case.
//
// One round trip, and a second one where other schemas of key are in use. It returns
// within 6 s, and at once when ctx ends. Where it returns another error than
// ErrNotStored, v may have been stored or not, or may be stored within 5 s yet: repeat
// it. Errors: leasehold.ErrInvalid for a bad key and for a v that can't be encoded;
// leasehold.ErrUnavailable, leasehold.ErrClosed, ctx's own.
func (g *Group[T]) Put(ctx context.Context, key string, v T) error {
	const op = "put"
	t, err := g.target(op, key)
	if err != nil {
		return err
	}
	data, err := g.encode(v)
	if err != nil {
		return call.Fail(pkg, op, t.Label, leasehold.ErrInvalid, err)
	}
	ttl, err := g.ttlOf(key, v)
	if err != nil {
		return call.Fail(pkg, op, t.Label, err)
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
	return call.Fail(pkg, op, t.Label, unstored...)
}

// ttlOf is ttl where TTLFor runs on a caller's goroutine: its panic is an error.
func (g *Group[T]) ttlOf(key string, v T) (ttl time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("TTLFor panicked: %v", p)
		}
	}()
	return g.ttl(key, v), nil
}

// drop is what Invalidate or Put does to one key. First it runs for the group's own
// schema; the reply names the others, for which it runs then. A load of another schema
// that begins in between is not named. It may store, since it began after the call.
type drop struct {
	target
	put *loads.Result // what is to be stored; nil = nothing

	// Used by one try at a time.
	own    bool            // done for the group's own schema
	others map[uint32]bool // of these, which are done
	err    error           // of the last try

	done atomic.Bool // everything is
}

// dropAll drops keys, in tries of which each sends what is left to do.
func (g *Group[T]) dropAll(ctx context.Context, op string, open []*drop) error {
	if len(open) == 0 {
		return nil
	}
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
		// Each server by itself: one that hangs delays no other's keys.
		g.manager.Client().ByNode(names, func(which []int) {
			some := make([]*drop, len(which))
			for n, i := range which {
				some[n] = open[i]
			}
			g.tryDrops(context.WithoutCancel(ctx), some, stop)
		})
	})
	g.mu.Unlock()
	defer close(stop)
	bound := time.NewTimer(dropBound)
	defer bound.Stop()
	select {
	case <-ended:
		var errs []error
		for _, d := range open {
			outcome := leasehold.OutcomeOK
			if !d.done.Load() {
				outcome = leasehold.OutcomeUnavailable
			}
			g.observe(leasehold.Event{Kind: leasehold.EventInvalidated, Outcome: outcome})
			if !d.done.Load() {
				errs = append(errs, call.Fail(pkg, op, d.Label, leasehold.ErrUnavailable, d.err))
			}
		}
		return errors.Join(errs...)
	case <-ctx.Done():
		return failDrops(op, open, ctx.Err(), leasehold.ErrUnavailable)
	case <-bound.C:
		return failDrops(op, open, leasehold.ErrUnavailable, errDropSlow)
	}
}

var errDropSlow = fmt.Errorf("no answer within %v", dropBound)

// failDrops is the error of the keys that are not done.
func failDrops(op string, all []*drop, errs ...error) error {
	var failed []error
	for _, d := range all {
		if !d.done.Load() {
			failed = append(failed, call.Fail(pkg, op, d.Label, errs...))
		}
	}
	return errors.Join(failed...)
}

// tryDrops tries until all is done or refused, the time for it is over, or the caller
// has gone.
func (g *Group[T]) tryDrops(ctx context.Context, open []*drop, stop <-chan struct{}) {
	until := time.Now().Add(dropTriesFor)
	failures := 0
	for len(open) > 0 {
		g.sendDrops(ctx, open)
		var again []*drop
		failed := false
		for _, d := range open {
			switch {
			case d.done.Load():
			case d.err == nil: // it has learned of other schemas
				again = append(again, d)
			case d.mayRetry() && time.Now().Before(until):
				again = append(again, d)
				failed = true
			}
		}
		if open = again; !failed {
			continue
		}
		failures++
		select {
		case <-time.After(call.Backoff(failures)):
		case <-stop:
			return
		}
	}
}

// mayRetry reports whether to try again after an error. An invalidation may run twice.
// A put may not: the second run could undo another one that was answered in between.
func (d *drop) mayRetry() bool {
	switch call.Classify(d.err) {
	case call.Refused:
		return false
	case call.NotNow:
		return true
	default:
		return d.put == nil || d.own
	}
}

// sendDrops sends what is left to do for each key, in one round trip per server.
func (g *Group[T]) sendDrops(ctx context.Context, open []*drop) {
	client := g.manager.Client()
	var calls []*call.Call
	for _, d := range open {
		d.err = nil
		if d.own {
			for schema, done := range d.others {
				if !done {
					calls = append(calls, g.dropOther(d, schema))
				}
			}
			continue
		}
		one := g.resource(d.target).Invalidate()
		if d.put != nil {
			now, err := g.putClock(d.target)
			if err != nil {
				d.err = err
				continue
			}
			one = g.resource(d.target).Put(now+putArrivesWithin.Microseconds(), *d.put)
		}
		one.Done = func(v []int64, err error) { g.onDropped(d, one, v, err) }
		calls = append(calls, one)
	}
	client.Send(ctx, calls)
	for _, d := range open {
		if d.err == nil && d.own && d.othersDone() {
			d.done.Store(true)
		}
	}
}

func (d *drop) othersDone() bool {
	for _, done := range d.others {
		if !done {
			return false
		}
	}
	return true
}

// putClock is the server's clock, for the time from which a put is void.
func (g *Group[T]) putClock(t target) (int64, error) {
	now, err := g.serverTime(t)
	if err != nil {
		// Nothing was sent, whatever the error is.
		return 0, fmt.Errorf("%w: %w", call.ErrNotSent, err)
	}
	return now, nil
}

// errPutLate says that a put arrived after its time, and did nothing.
var errPutLate = fmt.Errorf("the put arrived late, and did nothing: %w", call.ErrNotSent)

// onDropped takes the reply for the group's own schema. Called before Send returns, for
// a drop by one goroutine.
func (g *Group[T]) onDropped(d *drop, one *call.Call, v []int64, err error) {
	var reply loads.Dropped
	if err == nil && d.put != nil {
		reply, err = loads.ReadPut(v, one.Text)
	} else if err == nil {
		reply, err = loads.ReadInvalidate(v, one.Text)
	}
	if err == nil && reply.Void {
		err = errPutLate
	}
	if d.err = err; err != nil {
		return
	}
	d.own, d.others = true, map[uint32]bool{}
	for _, schema := range reply.Others {
		d.others[schema] = false
	}
	before := reply.At
	if d.put != nil {
		before-- // what was put itself has this stamp
	}
	g.invalidatedAt.raise(d.value, before)
	g.mu.Lock()
	delete(g.localFlights, d.key) // a newcomer must not join what was begun before
	g.mu.Unlock()
}

// dropOther prepares the invalidation of another schema.
func (g *Group[T]) dropOther(d *drop, schema uint32) *call.Call {
	one := loads.NewResource(d.Resource, schema).Invalidate()
	one.Done = func(v []int64, err error) {
		if err == nil {
			_, err = loads.ReadInvalidate(v, one.Text)
		}
		if err != nil {
			d.err = err
			return
		}
		d.others[schema] = true
	}
	return one
}
