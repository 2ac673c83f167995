package localturns

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// line is the requests of a process for one key, weight and limit.
type line struct {
	h    *Handle
	name lineName

	mu          sync.Mutex // guards what follows, and the turns and visits
	most        int        // places and visits together: as many as the limit in force has room for
	first, last *Turn      // the turns that wait, in the order of their coming
	length      int
	visits      map[*visit]struct{}
	places      []*place
	queued      int // places that Redis answered "queued" for
	state       lease.State
	told        bool // state is what Redis told last
	lastErr     error
	pausedUntil time.Time // no place is taken before: the last one was refused
}

// place is an attempt of the process that is not granted yet.
type place struct {
	op        string             // for errors
	cancel    context.CancelFunc // nil: the first caller's own ctx ends it
	cancelled bool
	queued    bool
	alone     bool // nobody else waited when it was taken
	again     bool // it follows a lease that is given back in the same pipeline
}

func (ln *line) idle() bool { return ln.length == 0 && len(ln.visits) == 0 && len(ln.places) == 0 }

// waiting is how many turns MaxWaiters counts: not those that Redis may grant to at
// once, for it has not answered yet.
func (ln *line) waiting() int {
	n := ln.length
	for _, p := range ln.places {
		if !p.queued && !p.again {
			n--
		}
	}
	return n
}

// learnLimit takes the limit in force, as Redis told it. Called with the lock.
func (ln *line) learnLimit(limit int) { ln.most = max(1, limit/ln.name.permits) }

func (ln *line) push(t *Turn) {
	t.ahead = ln.last
	if ln.last == nil {
		ln.first = t
	} else {
		ln.last.behind = t
	}
	ln.last = t
	ln.length++
}

func (ln *line) remove(t *Turn) {
	if t.ahead == nil {
		ln.first = t.behind
	} else {
		t.ahead.behind = t.behind
	}
	if t.behind == nil {
		ln.last = t.ahead
	} else {
		t.behind.ahead = t.ahead
	}
	t.ahead, t.behind = nil, nil
	ln.length--
}

// busy is the error of a request that finds the line as it is.
func (ln *line) busy() *leasehold.BusyError {
	if !ln.told {
		return ln.h.m.BusyError(lease.State{InUse: len(ln.visits) * ln.name.permits, Limit: ln.name.limit})
	}
	return ln.h.m.BusyError(ln.state)
}

// attempt is a request of the line. onEnd is told when its lease ends by itself.
func (ln *line) attempt(op string, wait bool, v *visit) lease.Attempt {
	return lease.Attempt{
		Op: op, Key: ln.name.key, Permits: ln.name.permits, Limit: ln.name.limit, Wait: wait,
		Parent: context.Background(), Shared: true, OnEnd: v.ended,
	}
}

// try takes a turn without waiting, on the lease into. Called with the lock, which it gives up.
func (ln *line) try(ctx context.Context, t *Turn, into *lease.Lease) error {
	m := ln.h.m
	if ln.length > 0 {
		defer ln.mu.Unlock()
		return m.Reject(t.op, ln.name.key, ln.busy())
	}
	ln.mu.Unlock()
	v := &visit{line: ln, lease: into}
	if _, err := m.Acquire(ctx, ln.attempt(t.op, false, v), v.lease); err != nil {
		return err
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.admit(v, true) {
		return v.whyOver(t.op)
	}
	t.begin(v, time.Now())
	return nil
}

// whyOver is the error of a request whose lease ended before its first turn.
func (v *visit) whyOver(op string) error {
	m, key := v.line.h.m, v.line.name.key
	select {
	case <-m.Closing():
		return m.Reject(op, key, leasehold.ErrClosed)
	default:
		v.lease.GiveBack()
		return m.Reject(op, key, leasehold.ErrUnavailable, errLate)
	}
}

var errLate = errors.New("the reply came later than the lease lasts")

// admit makes a granted lease one of the line's visits. False: it has ended already.
// Called with the lock.
func (ln *line) admit(v *visit, alone bool) bool {
	if _, held := v.lease.HeldUntil(); !held {
		v.over = true
		return false
	}
	v.until = v.lease.Since().Add(ln.h.cfg.LocalFor)
	v.alone = alone
	ln.lastErr = nil
	ln.visits[v] = struct{}{}
	return true
}

// drop takes a visit out of the line. Called with the lock.
func (ln *line) drop(v *visit) {
	v.over = true
	delete(ln.visits, v)
}

// enterFirst takes a place for the only caller of an idle line, on its goroutine.
// giveUpAt is when its MaxWait is over, into becomes the lease. Called with the lock, which it gives up. An
// error ends the call.
func (ln *line) enterFirst(ctx context.Context, t *Turn, into *lease.Lease, maxWait <-chan time.Time, giveUpAt time.Time) (err error) {
	v, p := &visit{line: ln, lease: into}, &place{}
	ln.places = append(ln.places, p)
	ln.mu.Unlock()
	var at *lease.Place
	err = errGoroutineEnded
	defer func() {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		switch {
		case at != nil:
			// The place is the process's from now on.
			placeCtx, cancel := context.WithCancel(context.Background())
			p.cancel = cancel
			ln.onQueued(p, at)
			ln.cancelExcess()
			ln.h.m.Go(func() { ln.follow(placeCtx, p, v, at) })
		case err == errGoroutineEnded || err != nil && (ctx.Err() != nil || maxWait != nil && !time.Now().Before(giveUpAt)):
			// It is over for this caller alone.
			ln.removePlace(p)
			ln.abandon(t)
		default:
			ln.onPlaceDone(p, v, err, true)
			err = nil // where it ends the wait of this turn, too, the turn has been told
		}
	}()
	at, err = ln.h.m.Enter(ctx, ln.attempt(t.op, true, v), maxWait, v.lease)
	return err
}

// errGoroutineEnded stands for the outcome of a call whose goroutine a hook of the
// client ended.
var errGoroutineEnded = errors.New("a hook of the client ended the goroutine of the call")

// onQueued learns that a place is in the queue. Called with the lock.
func (ln *line) onQueued(p *place, at *lease.Place) {
	p.queued = true
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
	return min(ln.most-len(ln.visits), ln.length) - len(ln.places)
}

// takePlaces takes the places that are missing. Called with the lock.
func (ln *line) takePlaces() {
	for ln.missing() > 0 {
		if wait := time.Until(ln.pausedUntil); wait > 0 && (len(ln.visits) > 0 || len(ln.places) > 0) {
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
	if p.queued {
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
	case errors.Is(err, leasehold.ErrInvalid) || errors.Is(err, leasehold.ErrClosed) || len(ln.visits) == 0 && len(ln.places) == 0:
		// Nothing is left that could serve the line.
		for ln.first != nil {
			t := ln.first
			ln.remove(t)
			t.err = err
			t.wake <- struct{}{}
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
	excess := len(ln.places) - ln.length
	for i := len(ln.places) - 1; i >= 0 && excess > 0; i-- {
		if p := ln.places[i]; p.cancel != nil && !p.cancelled {
			p.cancelled = true
			p.cancel()
		}
		excess--
	}
}

// abandon ends the wait of a turn whose caller leaves. Where the turn has just come, it
// is passed on. Called with the lock.
func (ln *line) abandon(t *Turn) {
	switch t.cond {
	case running:
		v := t.visit
		t.end(released, leasehold.ErrReleased)
		ln.passOn(v)
	case waiting:
		if t.err == nil {
			ln.remove(t)
		}
		ln.cancelExcess()
		ln.takePlaces()
	}
}

// passOn hands the visit to the next turn, or gives it back in the background. Called
// with the lock.
func (ln *line) passOn(v *visit) {
	if v.over || ln.pass(v) {
		return
	}
	giveBack := ln.giveBack(v, "give back")
	ln.h.m.Go(func() { _ = giveBack() })
}

// pass hands the visit to the next turn in line. False: it is to be given back. Called
// with the lock.
func (ln *line) pass(v *visit) bool {
	t := ln.first
	if t == nil || v.served && !v.mayServeAgain() {
		return false
	}
	now := time.Now()
	if now.After(v.until) {
		return false
	}
	if _, held := v.lease.HeldUntil(); !held {
		return false
	}
	ln.remove(t)
	t.begin(v, now)
	t.wake <- struct{}{}
	if ln.length == 0 && len(ln.places) > 0 {
		ln.cancelExcess()
	}
	lead := max(ln.h.cfg.LocalFor/4, min(2*v.roundTrip, ln.h.cfg.LocalFor/2))
	if v.alone && !v.asking && v.until.Sub(now) < lead {
		v.asking = true
		ln.h.m.Go(v.askOthers)
	}
	return true
}

// askOthers asks whether anybody else waits. Where nobody does, turns may begin for
// another LocalFor from the question on. A place of the line's own in the queue cannot
// be told from another's. Where more permits are in use than the limit in force allows,
// for it was lowered, the lease is needed back as if others waited.
func (v *visit) askOthers() {
	ln := v.line
	var use lease.Use
	err := errGoroutineEnded
	sent := time.Now()
	defer func() {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		v.asking = false
		v.roundTrip = time.Since(sent)
		if err != nil {
			v.alone = false // nobody knows; it is not asked again
			return
		}
		ln.learnLimit(use.Limit)
		if v.alone = use.Waiting == 0 && use.InUse <= use.Limit; v.alone {
			v.until = sent.Add(ln.h.cfg.LocalFor)
		}
		ln.takePlaces() // the limit may have been raised
	}()
	use, err = v.lease.RenewAndCount()
}

// giveBack takes the visit out of the line, and returns what gives it back: together
// with a new enter, where turns wait that have no place. Called with the lock; the
// function is called without it.
func (ln *line) giveBack(v *visit, op string) func() error {
	ln.drop(v)
	if ln.missing() <= 0 {
		ln.takePlaces()
		return func() error { return v.lease.Release(op) }
	}
	ctx, p := ln.newPlace()
	p.again = true
	return func() error {
		left := make(chan error, 1)
		ln.h.m.Go(func() { ln.giveBackAndEnter(ctx, v, p, op, left) })
		return <-left
	}
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
