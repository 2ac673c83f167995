package localturns

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/report"
)

// fromMemory returns a turn on a lease that rests; nil: there is none.
func (h *Handle) fromMemory(ctx context.Context, a lease.Attempt) (*Turn, error) {
	d := h.known(a.Key)
	if d == nil || ctx.Err() != nil {
		return nil, nil
	}
	began := h.m.Events().Now()
	d.mu.Lock()
	ln := d.find(lineName{a.Permits, a.Limit})
	if ln == nil || len(ln.idle) == 0 {
		d.mu.Unlock()
		return nil, nil
	}
	t := ln.resume(ctx, a.Op)
	if t == nil {
		d.mu.Unlock()
		return nil, nil
	}
	err := t.come()
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if events := h.m.Events(); events != nil {
		e := report.Acquired(ctx, a.Permits, false, began, nil)
		e.Kept = true
		events.Observe(e)
	}
	return t, nil
}

// ownTurn has what a caller needs that asks Redis for a lease of its own, in one allocation.
type ownTurn struct {
	turn  Turn
	visit visit
}

// acquireOwn takes a lease for the caller, and begins its first turn. The request does not stand in the line: its place,
// its errors and MaxWaiters are those of a request of a handle without turns. One that does not wait is busy, without
// a call, if others stand in the line and Redis answers.
func (h *Handle) acquireOwn(ctx context.Context, a lease.Attempt, into *lease.Lease) (*Turn, error) {
	lives := ctx.Err() == nil && !h.m.Closed()
	ln, err := h.lock(a.Key, a.Permits, a.Limit)
	if err != nil {
		return nil, h.m.Reject(a.Op, a.Key, err)
	}
	own := &ownTurn{
		turn:  Turn{line: ln, op: a.Op, parent: nested.Hold{Calm: nested.Calm{Context: ctx}}, handed: true},
		visit: visit{line: ln, lease: into},
	}
	t, v := &own.turn, &own.visit
	if !a.Wait && lives && ln.length > 0 && ln.answered(ln.first) {
		busy := h.m.Reject(a.Op, a.Key, ln.busy())
		ln.mu.Unlock()
		if events := h.m.Events(); events != nil {
			events.Observe(report.Acquired(ctx, a.Permits, false, events.Now(), busy))
		}
		return nil, busy
	}
	ln.tries++
	defer func() {
		ln.tries--
		ln.mu.Unlock()
	}()
	err = errGoroutineEnded // stays if a hook of the client ends the goroutine
	func() {
		var others []*visit
		if !a.Wait {
			others = ln.others()
		}
		ln.mu.Unlock()
		defer ln.mu.Lock()
		h.giveBackAll(ctx, a.Op, others)
		a.Own = true
		_, err = h.m.Acquire(ctx, ln.forTurns(a, v), into)
	}()
	if err != nil {
		return nil, err
	}
	ln.take(v, true)
	t.begin(v, time.Now())
	if !v.lease.ServeTurns() {
		t.handed, v.over = false, false
		v.leaseEnded()
	}
	return t, nil
}

// ownRecall gives back what rests of the key because a request of this process waits for it.
func (d *desk) ownRecall() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recall()
}

// others takes the leases of the desk's other lines that rest, so that they are given back before
// a request that does not wait. The desk is locked.
func (ln *line) others() (taken []*visit) {
	for _, other := range ln.lines {
		if other != ln {
			taken = append(taken, other.takeIdle()...)
		}
	}
	return taken
}

// takeIdle takes what rests out of the line. The desk is locked.
func (ln *line) takeIdle() []*visit {
	taken := slices.Clone(ln.idle)
	for _, v := range taken {
		ln.h.shelf.remove(v)
		v.idleSince = time.Time{}
		ln.drop(v)
	}
	clear(ln.idle)
	ln.idle = ln.idle[:0]
	return taken
}

// giveBackAll gives back leases that nobody uses, and waits until that is confirmed or ctx ends.
func (h *Handle) giveBackAll(ctx context.Context, op string, all []*visit) {
	if len(all) == 0 {
		return
	}
	var left sync.WaitGroup
	for _, v := range all {
		left.Add(1)
		h.m.Go(func() {
			defer left.Done()
			_ = v.lease.Release(op)
		})
	}
	done := make(chan struct{})
	h.m.Go(func() { left.Wait(); close(done) })
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// GiveBack gives back what rests of a key, before a request that is not served from memory and
// does not wait. It waits until that is confirmed, or ctx ends.
func (h *Handle) GiveBack(ctx context.Context, op, key string) {
	d := h.known(key)
	if d == nil || h.cfg.KeepFor == 0 {
		return
	}
	var taken []*visit
	d.mu.Lock()
	for _, ln := range d.lines {
		taken = append(taken, ln.takeIdle()...)
	}
	d.mu.Unlock()
	h.giveBackAll(ctx, op, taken)
}

// Recall gives back what rests of a key because a request waits that is not served from memory.
func (h *Handle) Recall(key string) {
	if d := h.known(key); d != nil && h.cfg.KeepFor > 0 {
		d.ownRecall()
	}
}
