package call

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A lane carries the calls of many goroutines to one server. If few round trips are under way,
// a caller makes its own at once, which is the quickest way. Otherwise its call waits until a
// round trip ends. It is then sent in one pipeline with the other waiting calls, as many as
// fit. So pipelines grow with the load, and no call waits for a timer while the server
// answers. Databases use group commits in the same way.
//
// Each round trip has a leader: the caller whose goroutine makes it. A call leaves the lane in
// one of four ways: a leader takes it (hand), its caller's ctx ends (withdraw), it has waited
// too long (expire), or it never waited (do). Each of them is decided under the mutex, so
// exactly one of them happens.
type lane struct {
	c    *Client
	born time.Time
	// allowance is the time that replicas may take to confirm the lane's calls. It is 0 in
	// lanes without confirmation.
	allowance time.Duration

	mu        sync.Mutex     // guards the fields below; never held while anything is sent
	trips     int            // round trips under way
	givesBack queue          // waiting calls that give something back; they go first
	others    queue          // the other waiting calls
	turns     []chan []*Call // unused channels for the next calls that wait
	relief    *time.Timer    // runs while a call waits
	answered  time.Time      // when a round trip last ended with an answer while calls waited
	lastErr   error          // the network error of the last round trip; nil: it had none
}

const (
	// maxInFlight is the number of round trips that a lane makes at once before calls wait for
	// each other.
	maxInFlight = 8
	// maxHanging bounds the round trips if some of them hang. Hanging ones must not hold up
	// the rest, but their number must stay limited.
	maxHanging = 32
	// maxQueueDelay is how long calls wait for a round trip to end before the lane begins
	// another one.
	maxQueueDelay = 20 * time.Millisecond
	// queueBound bounds the wait of a call in a lane whose server answers nothing, and the
	// wait of every call that gives something back. After that it is not sent. A pipeline
	// waits for a connection no longer than the rest of Bound.
	queueBound = Bound / 2
	// maxPipelineBytes bounds the length of a pipeline, unless one call alone is longer. Some
	// servers answer before they have read everything; over a connection without buffers they
	// would then hang. miniredis over net.Pipe, which tests use to run a server inside
	// testing/synctest, is one: it reads 4096 bytes at a time. Longer pipelines gain little:
	// see docs/architecture.md.
	maxPipelineBytes = 4000
	// maxConfirming and maxConfirmedBytes are the bounds for calls that replicas confirm: few
	// round trips, with long pipelines.
	maxConfirming     = 4
	maxConfirmedBytes = 64000
	// maxFreeTurns is how many unused channels a lane keeps.
	maxFreeTurns = 256
)

// maxTrips returns how many round trips may be under way; usual is the number for a lane
// without confirmation. Round trips that wait for replicas hold their connections for long.
func (l *lane) maxTrips(usual int) int {
	if l.allowance > 0 {
		return maxConfirming
	}
	return usual
}

// maxBytes returns the longest pipeline of the lane, unless one call alone is longer.
// Confirmed calls may have long pipelines: all calls of a pipeline share one WAIT, and
// miniredis, for which the other bound is small, has no WAIT.
func (l *lane) maxBytes() int {
	if l.allowance > 0 {
		return maxConfirmedBytes
	}
	return maxPipelineBytes
}

// laneOf returns the lane of a call.
func (c *Client) laneOf(one *Call) *lane {
	to := one.Way()
	if l, ok := c.lanes.Load(to); ok {
		return l.(*lane)
	}
	l, _ := c.lanes.LoadOrStore(to, &lane{c: c, born: time.Now(), allowance: one.Allowance()})
	return l.(*lane)
}

// do sends one, alone or with other calls, and returns its outcome.
func (l *lane) do(ctx context.Context, one *Call) (o outcome) {
	l.mu.Lock()
	if l.trips < l.maxTrips(maxInFlight) && l.waiting() == 0 {
		l.trips++
		l.mu.Unlock()
		defer func() { l.ended(o.err) }()
		return l.c.sendAlone(ctx, one)
	}
	l.enqueue(one)
	l.mu.Unlock()
	return l.await(ctx, one)
}

// await waits for the turn of a call. It receives either the calls to send, if the caller is
// to be the leader (its own call is among them), or nil once the call has its result. If a
// leader takes the call just before its caller's ctx ends, the call is sent all the same.
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

// lead makes the round trip for calls that have waited. one is the leader's own call.
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
	outcomes = l.c.sendTogether(calls, Bound-queueBound)
}

// hasAnswer reports whether the server answered a call that ended with err.
func hasAnswer(err error) bool { return err == nil || serverError(err) != "" }

// ended ends a round trip. If calls wait, the first of them leads the next round trip.
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

// The caller of each function below holds the mutex.

func (l *lane) waiting() int { return l.givesBack.n + l.others.n }

func (l *lane) takeTurn(one *Call) {
	if n := len(l.turns); n > 0 {
		one.turn, l.turns = l.turns[n-1], l.turns[:n-1]
	} else {
		one.turn = make(chan []*Call, 1)
	}
}

// freeTurn keeps the channel of a call that has its result. Nothing is sent on it any more.
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

// hand makes the first waiting call the leader of the waiting calls, as many as fit.
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

// inOrder yields the waiting calls in the order in which they are sent.
func (l *lane) inOrder(yield func(*Call) bool) {
	for _, q := range []*queue{&l.givesBack, &l.others} {
		for one := q.first; one != nil; one = one.next {
			if !yield(one) {
				return
			}
		}
	}
}

// expire ends the wait of calls that have waited too long. Other calls wait as long as their
// ctx allows while the server answers, but a call that gives something back does not: its
// caller repeats it in the background.
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

// withdraw takes a call out of the lane, and reports whether it was still waiting.
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

// relieve runs when the timer fires, and helps waiting calls if no round trip ends. If it runs
// late, so that the waiting calls are newer than the timer, an extra round trip does no harm.
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
