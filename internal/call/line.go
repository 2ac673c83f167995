package call

import (
	"container/heap"
	"fmt"
	"math"
	"time"
)

// What waits in a queue, by rank: how a call comes, the ways in which it goes, and the round trips that begin while
// calls wait. A call that is sent at once comes by none of this.

// drop gives a call that was withdrawn its outcome, unless a trip has taken it out of the
// queue: then the call gets its outcome there.
func (q *serverQueue) drop(one *Call) {
	if !q.remove(one) {
		return
	}
	if err := NotSent(errWithdrawn); one.turn != nil {
		one.result = &outcome{err: err}
		one.turn <- nil
	} else {
		one.done(outcome{err: err})
	}
}

// remove takes a call out of the queue, and reports whether it was still waiting.
func (q *serverQueue) remove(one *Call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one.place.index == 0 {
		return false
	}
	heap.Remove(&q.calls[one.Rank], one.place.index-1)
	return true
}

// The caller of each function below holds the mutex.

// push queues a call: among those of its rank it is the last, but for renewals, which go by the end of their leases.
func (q *serverQueue) push(one *Call) {
	one.since = time.Since(q.born)
	one.queue.Store(q)
	if q.waiting() == 0 {
		q.awaitRelief()
	}
	q.pushed++
	one.place.order = q.pushed
	if one.Rank == KeepsLease {
		one.place.order = int64(one.By.Sub(q.born))
	}
	heap.Push(&q.calls[one.Rank], one)
}

// take takes the calls of the next round trip out of the queue: at least one, and as many as fit.
func (q *serverQueue) take(bytes, share int) (calls []*Call) {
	for size := 0; ; {
		rank, any := q.first()
		if !any {
			return calls
		}
		one := q.calls[rank][0]
		size += one.size()
		cut := size > bytes
		if len(calls) > 0 && (cut || one.turn != nil && len(calls) >= share && size > q.pace.least) {
			calls[0].cut = cut
			return calls
		}
		heap.Pop(&q.calls[rank])
		if rank == ForCaller || rank == SignOfLife {
			q.next = ForCaller + SignOfLife - rank
		}
		if calls = append(calls, one); one.behind != nil {
			calls = append(calls, one.behind)
		}
	}
}

// first returns the rank of the call that is sent next. Over a short way one trip carries all
// renewals that are due: several at once would be as slow together, and each would be shorter.
// If it seems to hang, they do not wait for it, nor for relief, which does not come while other trips begin.
func (q *serverQueue) first() (rank Rank, any bool) {
	for _, rank := range [...]Rank{KeepsLease, GivesBack, q.next, ForCaller + SignOfLife - q.next} {
		if rank == KeepsLease && q.renewing > 0 && q.pace.quick() && time.Since(q.renewed) < max(minRelief, 2*q.pace.average) {
			continue
		}
		if len(q.calls[rank]) > 0 {
			return rank, true
		}
	}
	return 0, false
}

// expire gives up the calls that have waited for queueBound, if the server was silent all that
// time. Those of tasks come again.
func (q *serverQueue) expire(now time.Time) {
	bound := queueBound + q.confirm.Wait
	if now.Sub(q.answered) < bound {
		return
	}
	err := ErrSilent
	if q.lastErr != nil {
		err = NotSent(fmt.Errorf("%w: %w", ErrSilent, q.lastErr))
	}
	latest := now.Sub(q.born) - bound
	var gone []*Call
	for rank := range q.calls {
		kept := q.calls[rank][:0]
		for _, one := range q.calls[rank] {
			if one.since > latest {
				kept = append(kept, one)
				one.place.index = len(kept)
				continue
			}
			if one.place.index = 0; one.turn == nil {
				gone = append(gone, one)
				continue
			}
			one.result = &outcome{err: err}
			one.turn <- nil
		}
		clear(q.calls[rank][len(kept):])
		q.calls[rank] = kept
		heap.Init(&q.calls[rank])
	}
	if gone == nil {
		return
	}
	go func() { // not here: Done may take locks, and queue calls
		for _, one := range gone {
			if one.done(outcome{err: err}); one.behind != nil {
				one.behind.done(outcome{err: err})
			}
		}
	}()
}

// begin begins round trips while calls wait and no more trips are under way than usual.
func (q *serverQueue) begin() {
	for q.trips < q.most(maxInFlight) {
		if _, any := q.first(); !any {
			return
		}
		q.trip(q.pace.bytes, q.share())
	}
}

// share is how many calls a pipeline may have that callers wait for, unless it is shorter than every pipeline may be.
func (q *serverQueue) share() int {
	if !q.pace.quick() {
		return math.MaxInt
	}
	return q.waiting() / (2 * q.most(maxInFlight))
}

// trip begins a round trip with the calls that are next, in a pipeline of at most bytes. No
// call that a caller waits for is added to share others. The first caller leads the trip.
func (q *serverQueue) trip(bytes, share int) {
	calls := q.take(bytes, share)
	q.trips++
	if calls[0].Rank == KeepsLease {
		q.renewing++
		q.renewed = time.Now()
	}
	if q.waiting() == 0 {
		q.relief.Stop()
	} else {
		q.awaitRelief()
	}
	for _, one := range calls {
		if one.turn != nil {
			one.turn <- calls
			return
		}
	}
	go q.lead(calls, nil)
}

// spreads reports whether one more round trip may begin over a long way before one ends.
func (q *serverQueue) spreads() bool {
	return !q.pace.quick() && q.confirm == (Confirm{}) && q.trips < q.most(maxSpread)
}

// awaitRelief starts the timer for one more round trip.
func (q *serverQueue) awaitRelief() {
	after := min(max(minRelief, 2*q.pace.average)<<min(q.relieved, 5), maxRelief)
	if q.spreads() {
		after = max(minSpread, q.pace.average/16)
	}
	if q.relief == nil {
		q.relief = time.AfterFunc(after, q.relieve)
	} else {
		q.relief.Reset(after)
	}
}

// relieve runs when the timer fires, and helps waiting calls if no round trip ends. It takes the mutex. If it runs
// late, so that the waiting calls are newer than the timer, an extra round trip does no harm.
func (q *serverQueue) relieve() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting() > 0 {
		q.expire(time.Now())
	}
	switch {
	case q.waiting() == 0:
	case q.spreads():
		q.trip(q.pace.bytes, q.share())
	case q.trips < q.most(maxHanging):
		q.relieved++
		q.renewing = 0 // else there may be no call to send: the timer may be older than the trip of renewals
		q.trip(q.pace.bytes, q.share())
	default:
		q.awaitRelief()
	}
}

// A place is where a call stands among the waiting calls of its rank.
type place struct {
	order int64 // the call with the smallest order is sent first
	index int   // in the heap, plus one; 0: not in it
}

// waiting is a heap of the waiting calls of one rank. A call in the middle can be taken out,
// because its caller may leave.
type waiting []*Call

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].place.order < w[j].place.order }
func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place.index, w[j].place.index = i+1, j+1
}

func (w *waiting) Push(one any) {
	*w = append(*w, one.(*Call))
	one.(*Call).place.index = len(*w)
}

func (w *waiting) Pop() any {
	last := len(*w) - 1
	one := (*w)[last]
	(*w)[last], *w = nil, (*w)[:last]
	one.place.index = 0
	return one
}

// size returns the length of the call in the protocol in bytes, or slightly more, together
// with the call that goes right behind it.
func (c *Call) size() int {
	const word, number = 10, 20 // the frame of an argument; the longest integer
	n := word
	for _, arg := range c.args {
		switch arg := arg.(type) {
		case string:
			n += word + len(arg)
		case *string:
			n += word + len(*arg)
		case []byte:
			n += word + len(arg)
		default:
			n += word + number
		}
	}
	if c.behind != nil {
		n += c.behind.size()
	}
	return n
}
