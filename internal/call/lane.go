package call

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A lane carries the calls of many goroutines to one server. A caller that finds
// few round trips under way makes its own: nothing is quicker. Otherwise its call
// waits until one of them ends, and is then sent with the others that wait, in
// one pipeline, as far as they fit. So pipelines grow with the load, and no call
// waits for a timer while the server answers. Databases commit in groups the same
// way.
//
// Each round trip has a leader: the caller on whose goroutine it is made. A call
// leaves the lane in one of four ways, each decided under the mutex, so that
// exactly one of them happens: a leader takes it (take), its caller's ctx ends
// (withdraw), it has waited too long (expire), or it never waited (do).
type lane struct {
	c    *Client
	born time.Time
	// allowance is how long the replicas may take, where they confirm the lane's calls: 0
	// in every other lane.
	allowance time.Duration

	mu        sync.Mutex     // guards all below; never held while anything is sent
	trips     int            // round trips under way
	givesBack queue          // calls that wait and give something back: they go first
	others    queue          // the other calls that wait
	turns     []chan []*Call // for the next calls that wait
	relief    *time.Timer    // runs while a call waits
	answered  time.Time      // when a round trip ended with an answer while calls waited
	lastErr   error          // how the last round trip ended without one
}

const (
	// maxInFlight is how many round trips of a lane may be under way before calls
	// wait for each other.
	maxInFlight = 8
	// maxHanging is how many may be under way where they hang: a hanging round
	// trip must not hold up the rest, and the rest must not hang in any number.
	maxHanging = 32
	// maxQueueDelay is how long a call waits for one of them to end before one
	// more begins.
	maxQueueDelay = 20 * time.Millisecond
	// queueBound is how long a call waits in a lane whose server answers nothing,
	// or where it gives something back; then it is not sent. A pipeline waits for
	// a connection no longer than the rest of Bound.
	queueBound = Bound / 2
	// maxPipelineBytes is how long a pipeline is, unless one call alone is longer.
	// A server that answers before it has read all, over a connection without
	// buffers, would never go on: miniredis over net.Pipe, which is how tests have
	// a server inside testing/synctest, reads 4096 bytes at a time. Longer
	// pipelines gain little: see docs/architecture.md.
	maxPipelineBytes = 4000
	// maxConfirming and maxConfirmedBytes are the same for calls that replicas confirm:
	// few pipelines, and long ones.
	maxConfirming     = 4
	maxConfirmedBytes = 64000
	// maxFreeTurns is how many channels are kept for the next calls that wait.
	maxFreeTurns = 256
)

// maxTrips is how many round trips may be under way, usual being the number of another
// lane. Those that wait for replicas hold their connections for long.
func (l *lane) maxTrips(usual int) int {
	if l.allowance > 0 {
		return maxConfirming
	}
	return usual
}

// maxBytes is how long a pipeline of the lane is, unless one call alone is longer. All
// calls of a pipeline share one WAIT, and miniredis has none.
func (l *lane) maxBytes() int {
	if l.allowance > 0 {
		return maxConfirmedBytes
	}
	return maxPipelineBytes
}

// laneOf is the lane of a call to its server. Calls that replicas confirm have one of
// their own: others, above all those that give something back, do not wait for replicas.
func (c *Client) laneOf(one *Call) *lane {
	lanes := &c.lanes
	if one.Confirm != nil {
		lanes = &c.confirming
	}
	if l, ok := lanes.Load(one.Node); ok {
		return l.(*lane)
	}
	l, _ := lanes.LoadOrStore(one.Node, &lane{c: c, born: time.Now(), allowance: one.Allowance()})
	return l.(*lane)
}

// do sends one, alone or with others, and returns its outcome.
func (l *lane) do(ctx context.Context, one *Call) (o outcome) {
	l.mu.Lock()
	if l.trips < l.maxTrips(maxInFlight) && l.waiting() == 0 {
		l.trips++
		l.mu.Unlock()
		defer func() { l.ended(o.err) }()
		return l.c.alone(ctx, one)
	}
	l.enqueue(one)
	l.mu.Unlock()
	return l.await(ctx, one)
}

// await waits for the turn of a call. What comes is the calls to send, the
// caller's own among them, where the caller is to be the leader; or nil, once
// the call has its result. A call is sent even though its caller's ctx ended a
// moment ago if a leader took it before that.
func (l *lane) await(ctx context.Context, one *Call) outcome {
	var calls []*Call
	if done := ctx.Done(); done == nil {
		calls = <-one.turn
	} else {
		select {
		case calls = <-one.turn:
		case <-done:
			if l.withdraw(one) {
				return outcome{err: notSent(ctx.Err())}
			}
			calls = <-one.turn
		}
	}
	if calls != nil {
		l.lead(one, calls)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freeTurn(one)
	return *one.result
}

// lead makes the round trip of calls, which have waited, for one's caller.
func (l *lane) lead(one *Call, calls []*Call) {
	var outcomes []outcome
	// The other callers get an outcome even if a hook ends this goroutine.
	defer func() {
		err := errNoReply
		if outcomes == nil {
			outcomes = make([]outcome, len(calls))
			for i := range outcomes {
				outcomes[i].err = errNoReply
			}
		}
		for i := range outcomes {
			if err = outcomes[i].err; hasAnswer(err) {
				break // the server answers
			}
		}
		l.ended(err)
		for i, other := range calls {
			if other.result = &outcomes[i]; other != one {
				other.turn <- nil
			}
		}
	}()
	outcomes = l.c.together(calls, Bound-queueBound)
}

// hasAnswer reports whether a call that ended with err was answered.
func hasAnswer(err error) bool { return err == nil || serverError(err) != "" }

// ended ends a round trip: the calls that wait now make the next one.
func (l *lane) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastErr = nil; network(err) {
		l.lastErr = err
	}
	if l.waiting() > 0 {
		now := time.Now()
		if hasAnswer(err) {
			l.answered = now
		}
		l.expire(now)
	}
	if l.waiting() == 0 {
		l.trips--
		return
	}
	l.hand()
}

// The functions below are called with the mutex held.

func (l *lane) waiting() int { return l.givesBack.n + l.others.n }

func (l *lane) takeTurn(one *Call) {
	if n := len(l.turns); n > 0 {
		one.turn, l.turns = l.turns[n-1], l.turns[:n-1]
	} else {
		one.turn = make(chan []*Call, 1)
	}
}

// freeTurn keeps the channel of a call that has its result: nothing is sent on it
// any more.
func (l *lane) freeTurn(one *Call) {
	if len(l.turns) < maxFreeTurns {
		l.turns = append(l.turns, one.turn)
	}
}

func (l *lane) enqueue(one *Call) {
	l.takeTurn(one)
	one.since = time.Since(l.born)
	if l.waiting() == 0 {
		if l.relief == nil {
			l.relief = time.AfterFunc(maxQueueDelay, l.relieve)
		} else {
			l.relief.Reset(maxQueueDelay)
		}
	}
	if one.GivesBack {
		l.givesBack.push(one)
	} else {
		l.others.push(one)
	}
}

// hand lets the first call that waits lead those that wait, as far as they fit.
func (l *lane) hand() {
	n, size := 0, 0
	for one := range l.inOrder {
		if size += one.size(); n > 0 && size > l.maxBytes() {
			break
		}
		n++
	}
	calls := make([]*Call, 0, n)
	for range n {
		first := l.givesBack.first
		if first == nil {
			first = l.others.first
		}
		first.waitsIn.remove(first)
		calls = append(calls, first)
	}
	if l.waiting() == 0 {
		l.relief.Stop()
	} else {
		l.relief.Reset(maxQueueDelay)
	}
	calls[0].turn <- calls
}

// inOrder yields the calls that wait in the order in which they are sent.
func (l *lane) inOrder(yield func(*Call) bool) {
	for _, q := range []*queue{&l.givesBack, &l.others} {
		for one := q.first; one != nil; one = one.next {
			if !yield(one) {
				return
			}
		}
	}
}

// expire ends the wait of calls that have waited too long. A call that gives
// something back is repeated by its caller in the background; others wait as long
// as their ctx allows, while the server answers.
func (l *lane) expire(now time.Time) {
	err := ErrBacklog
	if l.lastErr != nil {
		err = notSent(fmt.Errorf("%w: %w", ErrBacklog, l.lastErr))
	}
	for _, q := range []*queue{&l.givesBack, &l.others} {
		for one := q.first; one != nil && now.Sub(l.born)-one.since >= queueBound+l.allowance; one = q.first {
			if q == &l.others && now.Sub(l.answered) < queueBound+l.allowance {
				break
			}
			q.remove(one)
			one.result = &outcome{err: err}
			one.turn <- nil
		}
	}
}

// The functions below take the mutex.

// withdraw takes a call out of the lane, and reports whether it still waited.
func (l *lane) withdraw(one *Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.waitsIn == nil {
		return false // it is sent, or has its result
	}
	one.waitsIn.remove(one)
	l.freeTurn(one)
	if l.waiting() == 0 {
		l.relief.Stop()
	}
	return true
}

// relieve looks after the calls that wait where no round trip ends: the timer's
// function. If it runs late, and the calls that wait have come since, one more
// round trip does no harm.
func (l *lane) relieve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting() > 0 {
		l.expire(time.Now())
	}
	switch {
	case l.waiting() == 0:
	case l.trips < l.maxTrips(maxHanging):
		l.trips++
		l.hand()
	default:
		l.relief.Reset(maxQueueDelay)
	}
}
