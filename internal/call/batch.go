package call

import (
	"context"
	"sync"
)

// NewBatch makes n seats for n goroutines that are about to make one call each. The calls
// share one round trip per server. They are sent, in the order of the seats, once every seat
// has handed in its call or was left. So a goroutine that does not use its seat must leave it.
func NewBatch(n int) []*Seat {
	b := &batch{open: n, calls: make([]seated, n), sent: make(chan struct{})}
	seats := make([]*Seat, n)
	for i := range seats {
		seats[i] = &Seat{batch: b, place: i}
	}
	return seats
}

// A batch is a set of calls that wait for each other.
type batch struct {
	mu    sync.Mutex
	open  int           // seats that are not closed; guarded by mu
	calls []seated      // by the place of the seat; guarded by mu; nil once sent
	sent  chan struct{} // closed once the calls are in their queues
}

// seated is the call of a seat and its queue. call is nil if the seat has none (yet).
type seated struct {
	queue *serverQueue
	call  *Call
}

// A Seat is one place in a batch. Leave may be called while Do is under way on another goroutine.
type Seat struct {
	batch  *batch
	place  int  // among the seats of the batch
	closed bool // it has handed in its call, or was left; guarded by batch.mu
}

// Do is Client.Do together with the other calls of the batch. If ctx ends while Do waits for them, the call is not
// sent. A seat is good for one call. After that, and after Leave, Do sends its call by itself.
func (s *Seat) Do(ctx context.Context, c *Client, one *Call) ([]int64, error) {
	if err := c.ready(ctx, one); err != nil {
		s.Leave()
		return nil, err
	}
	q := c.queueOf(one)
	if !s.close(seated{q, one}) {
		return c.Do(ctx, one)
	}
	select {
	case <-s.batch.sent:
	case <-ctx.Done():
		if s.batch.withdraw(s.place) {
			return nil, NotSent(ctx.Err())
		}
		<-s.batch.sent
	}
	o := q.await(ctx, one)
	one.Text = o.text
	return o.reply, o.err
}

// Leave gives the seat up, so that the other calls of the batch do not wait for it. It does
// not block, and does nothing if the seat was used or left before.
func (s *Seat) Leave() { s.close(seated{}) }

// close closes the seat, and returns false if it was closed before. When the last seat of the batch is closed, the
// calls go into their queues, and the first call in each queue leads its round trip. close itself sends nothing.
func (s *Seat) close(handed seated) (first bool) {
	b := s.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	b.calls[s.place] = handed
	if b.open--; b.open > 0 {
		return true
	}
	byQueue := map[*serverQueue][]*Call{}
	for _, c := range b.calls {
		if c.call != nil {
			byQueue[c.queue] = append(byQueue[c.queue], c.call)
		}
	}
	for q, calls := range byQueue {
		q.group(calls)
	}
	b.calls = nil
	close(b.sent)
	return true
}

// withdraw takes back the call of a seat, and reports whether it was in time.
func (b *batch) withdraw(place int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		return false
	}
	b.calls[place] = seated{}
	return true
}
