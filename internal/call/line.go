package call

import (
	"container/heap"
	"fmt"
	"time"
)

// What waits in a queue, by rank: how a call comes, and the ways in which it goes.

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

func (q *serverQueue) waiting() (n int) {
	for _, w := range q.calls {
		n += len(w)
	}
	return n
}

func (q *serverQueue) takeTurn(one *Call) {
	if n := len(q.turns); n > 0 {
		one.turn, q.turns = q.turns[n-1], q.turns[:n-1]
	} else {
		one.turn = make(chan []*Call, 1)
	}
}

// freeTurn keeps the channel of a call that has its result. Nothing is sent on it any more.
func (q *serverQueue) freeTurn(one *Call) {
	if len(q.turns) < maxFreeTurns {
		q.turns = append(q.turns, one.turn)
	}
}

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
func (q *serverQueue) first() (rank Rank, any bool) {
	for _, rank := range [...]Rank{KeepsLease, GivesBack, q.next, ForCaller + SignOfLife - q.next} {
		if rank == KeepsLease && q.renewing > 0 && q.pace.quick() {
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
