package localturns

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// place is an attempt of the process that is not granted yet.
type place struct {
	op        string             // for errors
	cancel    context.CancelFunc // nil: the first caller's own ctx ends it
	cancelled bool
	at        *lease.Place // nil: Redis has not answered "queued"
	alone     bool         // nobody else waited when it was taken
	again     bool         // it follows a lease that is given back in the same pipeline
}

// enterFirst takes a place for the only caller of an idle line, on its goroutine.
// giveUpAt is when its MaxWait is over. An error ends the call. Called with the lock,
// which is free meanwhile.
func (ln *line) enterFirst(ctx context.Context, first *firstTurn, maxWait <-chan time.Time, giveUpAt time.Time) (err error) {
	v, p := &first.visit, &first.place
	ln.places = append(ln.places, p)
	ln.mu.Unlock()
	var at *lease.Place
	err = errGoroutineEnded
	defer func() {
		ln.mu.Lock()
		switch {
		case at != nil:
			// The place is the process's from now on.
			placeCtx, cancel := context.WithCancel(context.Background())
			p.cancel = cancel
			place := at // a variable of the closure's own: at then needs no allocation
			ln.onQueued(p, place)
			ln.cancelExcess()
			ln.h.m.Go(func() { ln.follow(placeCtx, p, v, place) })
		case err == errGoroutineEnded || err != nil && (ctx.Err() != nil || maxWait != nil && !time.Now().Before(giveUpAt)):
			// It is over for this caller alone.
			ln.removePlace(p)
			ln.abandon(&first.turn)
		default:
			ln.onPlaceDone(p, v, err, true)
			err = nil // where it ends the wait of this turn, too, the turn has been told
		}
	}()
	at, err = ln.h.m.Enter(ctx, ln.attempt(first.turn.op, true, v), maxWait, v.lease)
	return err
}

// errGoroutineEnded stands for the outcome of a call whose goroutine a hook of the
// client ended.
var errGoroutineEnded = errors.New("a hook of the client ended the goroutine of the call")

// onQueued learns that a place is in the queue. Called with the lock.
func (ln *line) onQueued(p *place, at *lease.Place) {
	p.at = at
	ln.queued++
	ln.state, ln.told, ln.lastErr = at.State(), true, nil
	ln.learnLimit(ln.state.Limit)
}

// newPlace makes a place of the process's own. Called with the lock.
func (ln *line) newPlace() (context.Context, *place) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &place{cancel: cancel, op: ln.first.op}
	ln.places = append(ln.places, p)
	return ctx, p
}

// missing is how many places the line is to take: one for each turn that waits, as far
// as the limit has room. Called with the lock.
func (ln *line) missing() int {
	return min(ln.most-ln.visits, ln.length) - len(ln.places)
}

// takePlaces takes the places that are missing. Called with the lock.
func (ln *line) takePlaces() {
	for ln.missing() > 0 {
		if wait := time.Until(ln.pausedUntil); wait > 0 && (ln.visits > 0 || len(ln.places) > 0) {
			return // whatever is left serves the line meanwhile
		}
		ctx, p := ln.newPlace()
		v := &visit{line: ln, lease: new(lease.Lease)}
		ln.h.m.Go(func() {
			at, err := ln.h.m.Enter(ctx, ln.attempt(p.op, true, v), nil, v.lease)
			if at != nil {
				ln.mu.Lock()
				ln.onQueued(p, at)
				ln.mu.Unlock()
				ln.follow(ctx, p, v, at)
				return
			}
			ln.mu.Lock()
			defer ln.mu.Unlock()
			ln.onPlaceDone(p, v, err, true)
		})
	}
}

// follow waits for the turn of a place.
func (ln *line) follow(ctx context.Context, p *place, v *visit, at *lease.Place) {
	err := at.Await(ctx, v.lease)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.onPlaceDone(p, v, err, p.alone)
}

func (ln *line) removePlace(p *place) {
	if p.cancel != nil {
		p.cancel()
	}
	if p.at != nil {
		ln.queued--
	}
	for i, other := range ln.places {
		if other == p {
			ln.places = append(ln.places[:i], ln.places[i+1:]...)
			return
		}
	}
}

// refusalPause is how long no place is taken after one was refused, while the line has
// others, or a lease.
const refusalPause = 200 * time.Millisecond

// onPlaceDone takes the outcome of a place: a lease, or why there is none. alone says
// that nobody else was seen to wait. Called with the lock.
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
	case errors.Is(err, leasehold.ErrInvalid) || errors.Is(err, leasehold.ErrClosed) || ln.visits == 0 && len(ln.places) == 0:
		// Nothing is left that could serve the line.
		for ln.first != nil {
			t := ln.first
			ln.remove(t)
			t.err = err
			t.tell()
		}
	default:
		ln.lastErr = err
		ln.pausedUntil = time.Now().Add(refusalPause)
		time.AfterFunc(refusalPause, func() {
			ln.mu.Lock()
			defer ln.mu.Unlock()
			select {
			case <-ln.h.m.Closing():
			default:
				ln.takePlaces()
			}
		})
	}
	ln.takePlaces()
}

// cancelExcess gives up places that no turn waits for, the newest first. Called with the
// lock.
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
			continue // it is about to go
		}
		if p.cancel != nil {
			p.cancelled = true
			p.cancel()
		}
		excess--
	}
}

// retire takes the visit out of the line, to be given back: together with a new enter for
// p, where turns wait that have no place; else p is nil. Called with the lock.
func (ln *line) retire(v *visit) (ctx context.Context, p *place) {
	ln.drop(v)
	if ln.missing() <= 0 {
		return nil, nil
	}
	ctx, p = ln.newPlace()
	p.again = true
	return ctx, p
}

// giveBack gives back a visit that has been retired.
func (ln *line) giveBack(ctx context.Context, v *visit, p *place, op string) error {
	if p == nil {
		return v.lease.Release(op)
	}
	left := make(chan error, 1)
	ln.h.m.Go(func() { ln.giveBackAndEnter(ctx, v, p, op, left) })
	return <-left
}

// giveBackAndEnter gives a visit back and follows the new place. left takes what
// Release is to return.
func (ln *line) giveBackAndEnter(ctx context.Context, old *visit, p *place, op string, left chan error) {
	v := &visit{line: ln, lease: new(lease.Lease)}
	var at *lease.Place
	err := errGoroutineEnded
	defer func() {
		if err != nil {
			select {
			case left <- ln.h.m.Reject(op, ln.name.key, leasehold.ErrUnavailable, err):
			default: // it has been told what Release returns
			}
		}
		ln.mu.Lock()
		if at == nil {
			defer ln.mu.Unlock()
			if err == errGoroutineEnded {
				err = ln.h.m.Reject(p.op, ln.name.key, leasehold.ErrUnavailable, err)
			}
			ln.onPlaceDone(p, v, err, true)
			return
		}
		ln.onQueued(p, at)
		p.alone = ln.state.Waiting <= 1
		ln.mu.Unlock()
		ln.follow(ctx, p, v, at)
	}()
	at, err = old.lease.GiveBackAndEnter(ctx, op, ln.attempt(p.op, true, v), v.lease, func(err error) { left <- err })
}
