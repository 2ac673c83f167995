package localturns

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// place is an attempt of the process that Redis has not granted yet. It belongs to the
// process and not to a waiter: the lease that it becomes serves the first turn in line.
type place struct {
	op        string             // for errors
	cancel    context.CancelFunc // nil while the first caller's own ctx ends it
	cancelled bool
	queued    *lease.Place // nil until Redis has answered "queued"
	alone     bool         // nobody else was waiting when it was taken; false: it is not known, or somebody was
	again     bool         // it was taken in the pipeline that gave the last lease back
}

// enterFirst takes a place for the only caller of an idle line, on the caller's goroutine.
// giveUpAt is when the caller's MaxWait is over. An error ends the caller's wait. The line
// is locked, except while enterFirst waits for Redis.
func (ln *line) enterFirst(ctx context.Context, first *firstTurn, maxWait <-chan time.Time, giveUpAt time.Time) (err error) {
	v, p := &first.visit, &first.place
	ln.places = append(ln.places, p)
	ln.mu.Unlock()
	var queued *lease.Place
	var gaveUp bool
	err = errGoroutineEnded // stays if a hook of the client ends the goroutine, or ctx panics
	defer func() {
		ln.mu.Lock()
		switch {
		case queued != nil:
			// From now on the place belongs to the process, and the caller's ctx does not end it.
			placeCtx, cancel := context.WithCancel(context.Background())
			p.cancel = cancel
			ln.onQueued(p, queued)
			ln.cancelExcess()
			ln.h.m.Go(func() { ln.follow(placeCtx, p, v) })
		case err == errGoroutineEnded || err != nil && gaveUp:
			// Only this caller gives up. Others in line go on.
			ln.removePlace(p)
			ln.abandon(&first.turn)
		default:
			ln.onPlaceDone(p, v, err, true)
			err = nil // onPlaceDone has told the turn, if this ends its wait too
		}
	}()
	place, fails := ln.h.m.Enter(ctx, ln.attempt(first.turn.op, v), maxWait, v.lease)
	if fails != nil {
		gaveUp = ctx.Err() != nil || maxWait != nil && !time.Now().Before(giveUpAt)
	}
	queued, err = place, fails
	return err
}

// errGoroutineEnded is the outcome of a call if a hook of the client ended the goroutine that made the call.
var errGoroutineEnded = errors.New("a hook of the client ended the goroutine of the call")

// onQueued notes that a place is in the queue in Redis. The line is locked.
func (ln *line) onQueued(p *place, queued *lease.Place) {
	p.queued = queued
	ln.heard = time.Now()
	ln.state, ln.told, ln.lastErr = queued.State(), true, nil
	ln.learnLimit(ln.state.Limit)
}

// newPlace adds a place that no caller's ctx can end, and returns the ctx that ends it. At
// least one turn waits. The line is locked.
func (ln *line) newPlace() (context.Context, *place) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &place{cancel: cancel, op: ln.first.op}
	ln.places = append(ln.places, p)
	return ctx, p
}

// missing returns how many more places the line needs, 0 or less if none: one for each waiting
// turn, but not more than the limit has room for. The line is locked.
func (ln *line) missing() int {
	return min(ln.most-len(ln.visits), ln.length) - len(ln.places)
}

// takePlaces takes the places that are missing. The line is locked.
func (ln *line) takePlaces() {
	for ln.missing() > 0 {
		if wait := time.Until(ln.pausedUntil); wait > 0 && (len(ln.visits) > 0 || len(ln.places) > 0) {
			return // the leases and places that are left serve the line meanwhile
		}
		ctx, p := ln.newPlace()
		v := &visit{line: ln, lease: new(lease.Lease)}
		ln.h.m.Go(func() {
			queued, err := ln.h.m.Enter(ctx, ln.attempt(p.op, v), nil, v.lease)
			if queued != nil {
				ln.mu.Lock()
				ln.onQueued(p, queued)
				ln.mu.Unlock()
				ln.follow(ctx, p, v)
				return
			}
			ln.mu.Lock()
			defer ln.mu.Unlock()
			ln.onPlaceDone(p, v, err, true)
		})
	}
}

// follow waits until Redis grants a place that is in the queue.
func (ln *line) follow(ctx context.Context, p *place, v *visit) {
	err := p.queued.Await(ctx, v.lease)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.onPlaceDone(p, v, err, p.alone)
}

func (ln *line) removePlace(p *place) {
	if p.cancel != nil {
		p.cancel()
	}
	ln.places = slices.DeleteFunc(ln.places, func(other *place) bool { return other == p })
}

// refusalPause is how long the line takes no place after one was refused, if it has other
// places or a lease that serve it meanwhile.
const refusalPause = 200 * time.Millisecond

// onPlaceDone takes the outcome of a place: a lease, or the reason why there is none. alone
// says whether nobody else was seen to wait. The line is locked.
func (ln *line) onPlaceDone(p *place, v *visit, err error, alone bool) {
	ln.removePlace(p)
	switch {
	case err == nil:
		if ln.admit(v, alone) {
			ln.passOn(v)
		} else {
			v.lease.GiveBack()
		}
	case p.cancelled:
	case errors.Is(err, leasehold.ErrInvalid) || errors.Is(err, leasehold.ErrClosed) || len(ln.visits) == 0 && len(ln.places) == 0:
		// Nothing is left that could serve the line.
		for ln.first != nil {
			t := ln.first
			ln.remove(t)
			t.err = err
			t.tell()
		}
	default:
		if ln.lastErr = err; !errors.Is(err, leasehold.ErrUnavailable) {
			ln.lastErr = nil // Redis has answered
		}
		ln.pausedUntil = time.Now().Add(refusalPause)
		time.AfterFunc(refusalPause, func() {
			ln.mu.Lock()
			defer ln.mu.Unlock()
			if !ln.h.m.Closed() {
				ln.takePlaces()
			}
		})
	}
	ln.takePlaces()
}

// cancelExcess gives up the places that no turn waits for, the newest first. It cannot give up the place that the first
// caller's own call is still asking for: enterFirst calls it again once that place is queued. The line is locked.
func (ln *line) cancelExcess() {
	excess := -ln.length
	for _, p := range ln.places {
		if !p.cancelled {
			excess++
		}
	}
	for i := len(ln.places) - 1; i >= 0 && excess > 0; i-- {
		p := ln.places[i]
		if p.cancelled {
			continue // it is going already
		}
		if p.cancel != nil {
			p.cancelled = true
			p.cancel()
		}
		excess--
	}
}

// retire takes the visit out of the line, so that giveBack can give it back. If turns wait without a place, retire also
// adds the place p, which giveBack enters in the same pipeline; else p is nil. The line is locked.
func (ln *line) retire(v *visit) (ctx context.Context, p *place) {
	if now := time.Now(); v.lease.HeldAt(now) {
		ln.heard = now
	}
	ln.drop(v)
	if ln.missing() <= 0 {
		return nil, nil
	}
	ctx, p = ln.newPlace()
	p.again = true
	return ctx, p
}

// giveBack gives back a visit that was retired, and enters for the place p if there is one.
func (ln *line) giveBack(ctx context.Context, v *visit, p *place, op string) error {
	if p == nil {
		return v.lease.Release(op)
	}
	left := make(chan error, 1)
	ln.h.m.Go(func() { ln.giveBackAndEnter(ctx, v, p, op, left) })
	return <-left
}

// giveBackAndEnter gives the visit back, enters for the new place and follows it. It sends
// the result of the giving back to left, for the caller of Release.
func (ln *line) giveBackAndEnter(ctx context.Context, old *visit, p *place, op string, left chan error) {
	v := &visit{line: ln, lease: new(lease.Lease)}
	var queued *lease.Place
	err := errGoroutineEnded
	defer func() {
		if err != nil {
			select {
			case left <- ln.h.m.Reject(op, ln.key, leasehold.ErrUnavailable, err):
			default: // the caller of Release has its result already
			}
		}
		ln.mu.Lock()
		if queued == nil {
			defer ln.mu.Unlock()
			if err == errGoroutineEnded {
				err = ln.h.m.Reject(p.op, ln.key, leasehold.ErrUnavailable, err)
			}
			ln.onPlaceDone(p, v, err, true)
			return
		}
		ln.onQueued(p, queued)
		p.alone = ln.state.Waiting <= 1
		ln.mu.Unlock()
		ln.follow(ctx, p, v)
	}()
	queued, err = old.lease.GiveBackAndEnter(ctx, op, ln.attempt(p.op, v), v.lease, func(err error) { left <- err })
}
