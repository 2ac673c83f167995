package call

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A serverQueue carries the calls of all handles of one go-redis client to one server, all with the same Confirm. If few round trips are under way
// and nothing waits, a caller makes its own at once, which is the quickest way. Otherwise its call waits until a round
// trip ends. It is then sent in one pipeline with other waiting calls, as many as fit (pace). So pipelines grow with
// the load, and no call waits for a timer while the server answers. Databases use group commits in the same way. Calls
// are sent by their rank; nothing that waits is dropped while the server answers.
//
// Each round trip has a leader, whose goroutine makes it: a caller whose own call is in it, or a new goroutine if the
// trip has no such call. A call leaves the queue in one of four ways: a trip takes it (take), its caller leaves (drop),
// the server has been silent for too long (expire), or it never waited (do, add). Each of them is decided under the
// mutex, so exactly one of them happens.
type serverQueue struct {
	server  *server
	confirm Confirm
	born    time.Time

	mu       sync.Mutex // guards the fields below; never held while anything is sent
	trips    int        // round trips under way
	renewing int        // of these, how many have renewals, but for those that seem to hang
	renewed  time.Time  // when the latest of them began
	calls    [ranks]waiting
	next     Rank        // ForCaller or SignOfLife: whose turn it is
	pushed   int64       // how many calls have come
	relief   *time.Timer // runs while a call waits
	relieved int         // how many trips it has begun since one ended with an answer
	answered time.Time   // when a round trip last ended with an answer
	lastErr  error       // the network error of the last round trip; nil: it had none
	pace     pace
}

const (
	// maxInFlight is the number of round trips that a queue makes at once before calls wait for
	// each other. A client with fewer connections makes no more than it has.
	maxInFlight = 8
	// Over a long way a queue makes up to maxSpread, one after the other with a pause of a
	// sixteenth of a trip. All that are under way may have begun at once with a call each, and
	// what comes just after would wait for a whole trip, again and again.
	maxSpread = 16
	minSpread = time.Millisecond
	// maxHanging bounds the round trips if some of them hang. Hanging ones must not hold up
	// the rest, but their number must stay limited.
	maxHanging = 32
	// minRelief and maxRelief bound how long calls wait for a round trip to end before one more
	// begins: twice the average time of a round trip at first, and twice as long each time that
	// none has ended. So a server that is silent for a second does not take all connections.
	minRelief = 20 * time.Millisecond
	maxRelief = 500 * time.Millisecond
	// queueBound is how long a server may be silent before the calls that wait for it are given
	// up. The wait of a pipeline for a connection is bounded by the rest of Bound.
	queueBound = Bound / 2
	// maxConfirming is the number of round trips with calls that replicas confirm. Such trips
	// hold their connections for long.
	maxConfirming = 4
)

// ErrSilent says that a call was not sent because the server had answered nothing for
// queueBound. It matches ErrNotSent.
var ErrSilent error = &unsent{fmt.Errorf("the server has answered nothing for %v", queueBound)}

// queueOf returns the queue of a call. Calls that replicas confirm have queues of their own, for
// two reasons: other calls, above all those that give something back, must not wait for
// replicas, and the time that replicas take must not look like a server that does not answer.
func (c *link) queueOf(one *Call) *serverQueue {
	s := c.server(one.Node)
	if one.Confirm == (Confirm{}) {
		return s.queue
	}
	q, known := s.confirming.Load(one.Confirm)
	if !known {
		q, _ = s.confirming.LoadOrStore(one.Confirm, newQueue(s, one.Confirm, minConfirmedBytes))
	}
	return q.(*serverQueue)
}

func newQueue(s *server, confirm Confirm, least int) *serverQueue {
	return &serverQueue{server: s, confirm: confirm, born: time.Now(), pace: pace{least: least, bytes: least}}
}

// most returns how many round trips may be under way; usual is the number for a queue without confirmation.
func (q *serverQueue) most(usual int) int {
	if q.confirm != (Confirm{}) {
		usual = maxConfirming
	}
	if n := q.server.link.connections; n > 0 && usual <= maxSpread {
		return min(usual, n)
	}
	return usual
}

// do sends one, alone or with other calls, and returns its outcome.
func (q *serverQueue) do(ctx context.Context, one *Call) (o outcome) {
	q.mu.Lock()
	if q.trips < q.most(maxInFlight) && q.waiting() == 0 {
		q.trips++
		q.mu.Unlock()
		return q.alone(ctx, one)
	}
	one.turn = make(chan []*Call, 1)
	q.push(one)
	q.begin() // renewals may wait for each other alone
	q.mu.Unlock()
	return q.await(ctx, one)
}

// alone makes the round trip of a call that did not have to wait. It ends within Bound and the
// client's timeouts.
func (q *serverQueue) alone(ctx context.Context, one *Call) (o outcome) {
	o.err = errNoReply // stays if a hook ends this goroutine
	c, began := q.server.link, time.Now()
	defer func() {
		if p := recover(); p != nil { // of the caller's ctx
			o.err = panicked(p)
		}
		q.ended(trip{began: began, unsent: one.Sent.IsZero()}, o.err)
	}()
	switch err := ctx.Err(); {
	case err != nil:
		return outcome{err: NotSent(err)} // the caller has left
	case one.Confirm != (Confirm{}):
		return c.sendTogether([]*Call{one}, Bound)[0]
	case !one.take(c, began):
		return outcome{err: NotSent(errWithdrawn)}
	}
	answered := true
	if c.boundsReads {
		o = c.sendOrTeach(ctx, began, one)
	} else {
		o, answered = within(hardBound, func() outcome { return c.sendOrTeach(ctx, began, one) })
	}
	if !answered {
		o.err = errNoAnswer
	}
	if o.err == nil {
		return o
	}
	if ctx.Err() == nil && errors.Is(o.err, context.DeadlineExceeded) {
		o.err = TooLate(o.err, began)
	}
	c.failed(one.Key(), o.err)
	return o
}

// add sends calls whose outcomes Done receives, or queues them. It does not wait. If together
// is true, calls go in one pipeline, provided that nothing waits.
func (q *serverQueue) add(together bool, calls ...*Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	free := q.trips < q.most(maxInFlight) && q.waiting() == 0
	if one := calls[0]; free && len(calls) == 1 && one.behind == nil && one.turn == nil {
		q.trips++
		one.queue.Store(q)
		go func() {
			o := outcome{err: errNoReply}
			defer func() { one.done(o) }()
			o = q.alone(one.ctx, one)
		}()
		return
	}
	for _, one := range calls {
		q.push(one)
	}
	if free && together {
		q.trip(maxPipelineBytes, len(calls))
	}
	q.begin()
}

// group is add, in one pipeline, for the calls of a batch. Each caller awaits its own call.
func (q *serverQueue) group(calls []*Call) {
	for _, one := range calls {
		one.turn = make(chan []*Call, 1)
	}
	q.add(true, calls...)
}

// await waits for the turn of a call. It receives either the calls to send, if the caller is
// to be the leader (its own call is among them), or nil once the call has its result. If a
// leader takes the call just before its caller's ctx ends, the call is sent all the same.
func (q *serverQueue) await(ctx context.Context, one *Call) outcome {
	var calls []*Call
	select {
	case calls = <-one.turn:
	case <-ctx.Done():
		if q.remove(one) {
			return outcome{err: NotSent(ctx.Err())}
		}
		calls = <-one.turn
	}
	if calls != nil {
		q.lead(calls, one)
	}
	return *one.result
}

// lead makes the round trip for calls that have waited. own is the leader's own call; nil if the leader is no caller.
func (q *serverQueue) lead(calls []*Call, own *Call) {
	var outcomes []outcome
	this := trip{began: time.Now(), full: calls[0].cut, renews: calls[0].Rank == KeepsLease}
	// The callers get an outcome even if a hook ends this goroutine. Those that wait for it are
	// told first. What Done does for the others takes longer, and belongs to the round trip, so
	// that no more goroutines are busy with outcomes than round trips are counted.
	defer func() {
		if outcomes == nil {
			outcomes = make([]outcome, len(calls))
			for i := range outcomes {
				outcomes[i].err = errNoReply
			}
		}
		err := errNoReply
		for i := range outcomes {
			if err = outcomes[i].err; HasAnswer(err) {
				break // the server answers
			}
		}
		waiting := 0
		for i, one := range calls {
			if one.result = &outcomes[i]; one.turn != nil {
				waiting++
			}
		}
		if waiting == len(calls) {
			q.ended(this, err)
		}
		for _, one := range calls {
			if one.turn != nil && one != own {
				one.turn <- nil
			}
		}
		if waiting < len(calls) {
			defer q.ended(this, err)
		}
		for i, one := range calls {
			if one.turn == nil {
				one.done(outcomes[i])
			}
		}
	}()
	outcomes = q.server.link.sendTogether(calls, Bound-queueBound)
}

// HasAnswer reports whether the server answered a call that ended with err.
func HasAnswer(err error) bool { return err == nil || serverError(err) != "" }

// A trip is a round trip under way.
type trip struct {
	began  time.Time
	full   bool // its pipeline was as long as it might be, and calls were left
	renews bool // its first calls are renewals
	unsent bool // its only call was not sent, because its caller had left
}

// ended ends a round trip, and begins the next ones.
func (q *serverQueue) ended(this trip, err error) {
	// The time that replicas take says nothing of the server.
	if !this.unsent && (q.confirm == (Confirm{}) || HasAnswer(err)) {
		q.server.breaker.outcome(this.began, err)
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.trips--
	if this.renews {
		q.renewing = max(0, q.renewing-1)
	}
	q.lastErr = nil
	switch {
	case HasAnswer(err):
		q.answered, q.relieved = now, 0
		q.pace.answered(now, this)
	case network(err):
		q.lastErr = err
		q.pace.failed()
	}
	if q.waiting() > 0 {
		q.expire(now)
		q.begin()
	}
}

// late returns the time after which an answer is late, and its call may be repeated.
func (q *serverQueue) late() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return 2 * q.pace.average
}

// waiting returns how many calls wait. Called with the mutex.
func (q *serverQueue) waiting() (n int) {
	for _, w := range q.calls {
		n += len(w)
	}
	return n
}

const (
	// minPipelineBytes is how long pipelines are at first, and again after a failure. Some
	// servers answer before they have read everything; over a connection without buffers they
	// would then hang. miniredis over net.Pipe is one: it reads 4096 bytes at a time.
	minPipelineBytes = 4000
	// minConfirmedBytes is the same for calls that replicas confirm. All calls of a pipeline
	// share one WAIT, and miniredis has none.
	minConfirmedBytes = 64000
	maxPipelineBytes  = 1 << 20
	// shortestOver is the age at which a shortest trip is forgotten, or up to twice as much.
	shortestOver = 10 * time.Second
	// quickTrip is the floor of the shortest trip. On the loopback a trip is so short that a
	// full pipeline never came close to it, and pipelines would not grow.
	quickTrip = time.Millisecond
	// quickRenewals is the floor for a trip with renewals. Nobody waits for those.
	quickRenewals = 8 * time.Millisecond
)

// A pace says how long the pipelines to one server may be, and how long its round trips take.
//
// Over a network with long round trips the number of calls per second is the length of the pipelines, so they grow as
// long as a full one takes little longer than the shortest trip. When they take much longer, the server or the network
// is the bound: longer pipelines would only make the next call wait.
type pace struct {
	least    int           // the length that pipelines begin with, in bytes
	bytes    int           // the length that a pipeline may have now
	average  time.Duration // of the trips that were answered, the last one with a weight of an eighth
	shortest [2]time.Duration
	turnsAt  time.Time // when shortest[0] becomes shortest[1]
}

// answered notes that a trip ended with an answer at the time now.
func (p *pace) answered(now time.Time, t trip) {
	took := now.Sub(t.began)
	if p.average += (took - p.average) / 8; p.turnsAt.IsZero() {
		p.average = took
	}
	if now.After(p.turnsAt) {
		p.shortest = [2]time.Duration{took, p.shortest[0]}
		if p.turnsAt.IsZero() {
			p.shortest[1] = took
		}
		p.turnsAt = now.Add(shortestOver)
	}
	p.shortest[0] = min(p.shortest[0], took)
	shortest := min(p.shortest[0], p.shortest[1])
	if shortest <= 0 {
		return // a trip that takes no time is one inside testing/synctest
	}
	usual := max(shortest, quickTrip)
	if t.renews {
		usual = max(shortest, quickRenewals)
	}
	switch {
	case t.full && took < 2*usual:
		p.bytes = min(2*p.bytes, max(p.least, maxPipelineBytes))
	case t.full && took > 4*usual:
		p.bytes = max(p.bytes/2, p.least)
	}
}

// quick says that the way to the server is so short that several short pipelines at once are quicker than a long one.
func (p *pace) quick() bool { return min(p.shortest[0], p.shortest[1]) < quickTrip }

// failed notes that a trip had no answer. Its calls are sent again in short pipelines: a long
// one may have been the reason.
func (p *pace) failed() { p.bytes = p.least }
