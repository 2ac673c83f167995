package singleflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/near"
)

// drop is what Invalidate or Put does to one key. It runs first for the group's own schema.
// The reply names the other schemas, and it runs for these next. A load of another schema that
// begins in between is not named. It may store its result, because it began after the call.
type drop struct {
	target
	put *loads.Result // the result to store; nil: none

	// Only one try at a time uses these.
	own    bool            // done for the group's own schema
	others map[uint32]bool // the other schemas, and whether each is done
	err    error           // of the last try
	told   []*near.Told    // the calls that found processes with copies in memory

	dropped atomic.Bool // done in Redis, for all schemas
	done    atomic.Bool // and no process can serve an old copy any more
}

// tryDrops tries until each key is done or refused, the time for it is over, or the caller has
// left.
func (g *Group[T]) tryDrops(ctx context.Context, open []*drop, stop <-chan struct{}) {
	until := time.Now().Add(dropTriesFor)
	failures := 0
	for len(open) > 0 {
		g.sendDrops(ctx, open)
		var again []*drop
		failed := false
		for _, d := range open {
			switch {
			case d.dropped.Load():
			case d.err == nil: // the reply named other schemas
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

// mayRetry reports whether to try again after an error. An invalidation may run twice. A put
// may not: its second run could undo another put that was answered in between.
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
	var calls []*call.Call
	for _, d := range open {
		d.err = nil
		if !d.own {
			if one := g.dropCall(d, d.schema); one != nil {
				calls = append(calls, one)
			}
			continue
		}
		for schema, done := range d.others {
			if !done {
				calls = append(calls, g.dropCall(d, schema))
			}
		}
	}
	g.manager.Client().Send(ctx, calls)
	for _, d := range open {
		if d.err == nil && d.own && !slices.Contains(slices.Collect(maps.Values(d.others)), false) {
			d.dropped.Store(true)
		}
	}
}

// errPutLate says that a put arrived too late and did nothing.
var errPutLate = fmt.Errorf("the put arrived late, and did nothing: %w", call.ErrNotSent)

// dropCall prepares the call that drops a key for one schema: a put for the group's own one, if
// there is something to put. It returns nil if the put cannot be sent.
func (g *Group[T]) dropCall(d *drop, schema uint32) *call.Call {
	told, ack := g.numbered()
	own := schema == d.schema
	put := own && d.put != nil
	r := loads.NewResource(d.Resource, schema)
	one := r.Invalidate(ack)
	if put {
		now, err := g.serverTime(d.target) // from it the time is computed after which the put is void
		if err != nil {
			g.line.Writer.End(told)
			d.err = fmt.Errorf("%w: %w", call.ErrNotSent, err) // whatever the error is
			return nil
		}
		one = r.Put(now+putArrivesWithin.Microseconds(), *d.put, ack)
	}
	// Done is called before Send returns, and for one drop by one goroutine only.
	one.Done = func(v []int64, err error) {
		var reply loads.Dropped
		switch {
		case err != nil:
		case put:
			reply, err = loads.ReadPut(v, one.Text)
		default:
			reply, err = loads.ReadInvalidate(v, one.Text)
		}
		if err == nil { // the clock may have been set since it was last asked for; the next try knows
			g.manager.Client().Learn(d.value, call.Sample{Micros: reply.At, Sent: one.Sent, Got: time.Now()})
		}
		if reply.Void {
			err = errPutLate
		}
		g.near.Outdate(d.key) // also after an error: the script may have run
		if err != nil {
			g.line.Writer.End(told)
			d.err = err
			return
		}
		g.found(d, told, one, reply)
		if !own {
			d.others[schema] = true
			return
		}
		d.own, d.others = true, map[uint32]bool{}
		for _, other := range reply.Others {
			d.others[other] = other == d.schema // it is done, and was listed in another spelling
		}
		before := reply.At
		if put {
			before-- // the value that was put has exactly this stamp
		}
		g.invalidatedAt.raise(d.value, before)
		g.mu.Lock()
		if f := g.localFlights[d.key]; f != nil && f.called != 0 {
			f.closeJoining() // it began before; whoever waits for it to end need not
		}
		g.mu.Unlock()
	}
	return one
}
