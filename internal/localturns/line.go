package localturns

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

// line holds the requests of a process for one key, number of permits and limit, and the
// leases and places that serve them.
type line struct {
	*desk // its lock guards the fields below
	name  lineName

	// most bounds places and visits together: the limit in force has room for so many leases.
	most        int
	first, last *Turn    // the waiting turns, in order of arrival
	length      int      // number of waiting turns
	visits      []*visit // the leases that serve turns, or rest
	tries       int      // number of calls that ask Redis without a place
	idle        []*visit // those that rest, the one that was used last at the end
	places      []*place
	watched     bool           // a timer is to call lookAtLimit
	heard       time.Time      // when Redis last queued or granted a place, or a lease was given back that was held until then
	state       protocol.State // of the resource, as Redis last told it
	told        bool           // Redis has told it; else it is not known
	lastErr     error          // why Redis has not answered for the last place; nil: it has
	// pausedUntil is the time before which the line takes no further place if something serves
	// it meanwhile, because the last place was refused.
	pausedUntil time.Time
}

// busyNow reports whether anybody uses the line.
func (ln *line) busyNow() bool {
	return ln.length > 0 || len(ln.visits) > 0 || ln.tries > 0 || len(ln.places) > 0
}

// waiting returns how many turns count for MaxWaiters. For each place that Redis has not answered yet, one turn does
// not count: Redis may grant the place at once. If the process queues again, its turns still count.
func (ln *line) waiting() int {
	n := ln.length
	for _, p := range ln.places {
		if p.queued == nil && !p.again {
			n--
		}
	}
	return n
}

// learnLimit takes the limit in force from a reply of Redis. The line is locked.
func (ln *line) learnLimit(limit int) { ln.most = max(1, limit/ln.name.permits) }

func (ln *line) push(t *Turn) {
	t.ahead = ln.last
	if ln.last == nil {
		ln.first = t
	} else {
		ln.last.behind = t
	}
	ln.last = t
	t.joined = time.Now()
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

// busy returns the error of a request that finds the line in its present state.
func (ln *line) busy() *leasehold.BusyError {
	for _, p := range ln.places {
		if p.queued == nil {
			continue
		}
		if s := p.queued.State(); s.Limit > 0 { // its signs of life keep it up to date; one that was granted has none
			ln.state = s
		}
	}
	if !ln.told {
		return ln.h.m.BusyError(protocol.State{InUse: len(ln.visits) * ln.name.permits, Limit: ln.name.limit})
	}
	return ln.h.m.BusyError(ln.state)
}

// attempt returns what to ask Redis for to get a place that becomes v.
func (ln *line) attempt(op string, v *visit) lease.Attempt {
	return ln.forTurns(lease.Attempt{Op: op, Key: ln.key, Permits: ln.name.permits, Limit: ln.name.limit, Wait: true}, v)
}

// forTurns returns the attempt a for a lease that serves the turns of v.
func (ln *line) forTurns(a lease.Attempt, v *visit) lease.Attempt {
	a.Parent, a.Turns = context.Background(), v
	if ln.h.cfg.KeepFor > 0 {
		a.Keeps, a.OnWait = true, ln.ownRecall
	}
	return a
}

// admit adds a granted lease to the line's visits. It returns false if the lease has ended
// already. alone says whether nobody else was seen to wait. The line is locked.
func (ln *line) admit(v *visit, alone bool) bool {
	if !v.lease.HeldAt(time.Now()) {
		v.over = true
		return false
	}
	ln.take(v, alone)
	return true
}

// take is admit for a lease that may have ended. The line is locked.
func (ln *line) take(v *visit, alone bool) {
	v.until = v.lease.Since().Add(ln.h.cfg.LocalFor)
	v.alone = alone
	ln.lastErr = nil
	ln.heard = time.Now()
	v.counted, v.at = true, len(ln.visits)
	ln.visits = append(ln.visits, v)
	ln.leases++
	ln.granted(v)
}

// drop takes a visit out of the line. The line is locked.
func (ln *line) drop(v *visit) {
	v.over = true
	if !v.counted {
		return
	}
	v.counted = false
	last := len(ln.visits) - 1
	ln.visits[v.at] = ln.visits[last]
	ln.visits[v.at].at = v.at
	ln.visits[last] = nil
	ln.visits = ln.visits[:last]
	if ln.leases--; ln.leases == 0 {
		ln.unlisten()
	}
}

// abandon ends the wait of a turn whose caller leaves. If the turn has come meanwhile, it is passed on to the next in
// line. If it has come and was lost, its lease is given back, because the server may still have it. The line is locked.
func (ln *line) abandon(t *Turn) {
	switch t.cond {
	case running:
		v := t.visit
		t.end(released, leasehold.ErrReleased)
		ln.passOn(v)
	case lost:
		t.cond = released
		if !t.maxHeld { // else MaxHold has already passed the lease on
			t.visit.lease.GiveBack()
		}
	case waiting:
		if t.err == nil { // else it has been removed already
			ln.remove(t)
		}
		ln.cancelExcess()
		ln.takePlaces()
	}
}

// passOn passes the visit to the next turn, lets it rest, or gives it back in the background. The line is locked.
func (ln *line) passOn(v *visit) {
	if v.over || ln.pass(v) || ln.rest(v) {
		return
	}
	ctx, p := ln.retire(v)
	ln.h.m.Go(func() { _ = ln.giveBack(ctx, v, p, "give back") })
}

// pass passes the visit to the next turn in line. It returns false if the visit must be given back instead: nobody
// waits, LocalFor is over, or the lease must not serve another turn. The line is locked.
func (ln *line) pass(v *visit) bool {
	t := ln.first
	if t == nil || v.served && !(v.mayServeAgain() && v.nextTokenIsDue()) {
		return false
	}
	now := time.Now()
	if now.After(v.until) && !ln.mayRest(v, now) || !v.lease.HeldAt(now) { // also before the first turn, if this process was held up
		return false
	}
	ln.remove(t)
	first := !v.served
	t.begin(v, now)
	t.tell()
	if ln.length == 0 && len(ln.places) > 0 {
		ln.cancelExcess()
	}
	// The answer must be there before until: else the lease is given back although nobody else
	// waits. So the question is asked a quarter of LocalFor before until. If two round trips
	// take longer than that, it is asked earlier, but not in the first half of LocalFor.
	lead := max(ln.h.cfg.LocalFor/4, min(2*v.roundTrip, ln.h.cfg.LocalFor/2))
	// If holds are longer than LocalFor, the first turn is the last one too. Only this question
	// then tells that the limit was raised, because an enter that is granted at once does not.
	saturated := first && ln.h.cfg.Settable && ln.length > 0 && ln.missing() <= 0
	if v.alone && !v.asking && (saturated || v.until.Sub(now) < lead) {
		v.asking = true
		ln.h.m.Go(v.askOthers)
	}
	return true
}

// watchLimit has lookAtLimit called after the time of a sign of life. The line is locked.
func (ln *line) watchLimit() {
	if ln.h.cfg.Settable && !ln.watched {
		ln.watched = true
		time.AfterFunc(life.AskEvery, ln.lookAtLimit)
	}
}

// lookAtLimit asks Redis, by a lease that serves a turn, whether the limit was raised, while turns wait and no place
// does: else only the next grant from the queue would tell, and holds may be long.
func (ln *line) lookAtLimit() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.watched = false
	if ln.h.m.Closed() || ln.length == 0 {
		return // the next turn that waits has it watched again
	}
	ln.watchLimit()
	if v := ln.visits; len(v) > 0 && len(ln.places) == 0 && !v[0].asking {
		v[0].asking = true
		ln.h.m.Go(v[0].askOthers)
	}
}

// askOthers asks Redis whether anybody else waits. If nobody does, turns may begin for another LocalFor, counted from
// the moment of the question. A place of this line in the queue counts as somebody else, because Redis cannot tell the
// two apart. If more permits are in use than the limit allows, because the limit was lowered, the lease must be given
// back, just as if somebody waited.
func (v *visit) askOthers() {
	ln := v.line
	var use protocol.Use
	err := errGoroutineEnded
	sent := time.Now()
	defer func() {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		v.asking = false
		v.roundTrip = time.Since(sent)
		if err != nil {
			v.alone = false // whether anybody waits is not known; the question is not repeated
			return
		}
		ln.learnLimit(use.Limit)
		if v.alone = use.Waiting == 0 && use.InUse <= use.Limit; v.alone {
			v.until = sent.Add(ln.h.cfg.LocalFor)
		} else if v.grant.Keepable {
			ln.recall() // its message was lost, or came before anybody listened
		}
		ln.takePlaces() // the limit may have been raised
	}()
	use, err = v.lease.RenewAndCount(false)
}
