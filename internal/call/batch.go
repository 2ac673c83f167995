package call

import (
	"context"
	"slices"
	"sync"
)

// NewBatch makes n seats for n goroutines that are about to make one call each,
// so that those calls share a round trip per server: they are sent when each seat
// has handed in its call or was left. So a seat that is not used must be left.
func NewBatch(n int) []*Seat {
	b := &batch{open: n, sent: make(chan struct{})}
	seats := make([]*Seat, n)
	all := make([]Seat, n)
	for i := range seats {
		all[i].batch, all[i].place = b, i
		seats[i] = &all[i]
	}
	return seats
}

// batch is calls that wait for each other.
type batch struct {
	mu    sync.Mutex
	open  int               // seats that are neither used nor left; guarded by mu
	calls map[*lane][]*Call // handed in; guarded by mu, nil once sent
	sent  chan struct{}     // closed once the calls are in their lanes
}

// Seat is one place in a batch. It belongs to one goroutine.
type Seat struct {
	batch *batch
	place int  // calls are sent in the order of their seats
	used  bool // Do or Leave was called
}

// Do is Client.Do together with the other calls of the batch. It waits for them
// until ctx ends, and is then not sent. A seat is good for one call: after that,
// and after Leave, Do sends its call by itself.
func (s *Seat) Do(ctx context.Context, c *Client, one *Call) ([]int64, error) {
	if s.used {
		return c.Do(ctx, one)
	}
	if err := c.ready(ctx, one); err != nil {
		s.Leave()
		return nil, err
	}
	s.used = true
	one.place = s.place
	l := c.laneOf(one.Node)
	s.batch.settle(func(calls map[*lane][]*Call) { calls[l] = append(calls[l], one) })
	select {
	case <-s.batch.sent:
	case <-ctx.Done():
		if s.batch.withdraw(l, one) {
			return nil, notSent(ctx.Err())
		}
		<-s.batch.sent
	}
	o := l.await(ctx, one)
	one.Text = o.text
	return o.reply, o.err
}

// Leave gives the seat up: the other calls of the batch no longer wait for it. It
// does not block, and does nothing if the seat was used or left before.
func (s *Seat) Leave() {
	if s.used {
		return
	}
	s.used = true
	s.batch.settle(func(map[*lane][]*Call) {})
}

// settle closes an open seat. With the last one the calls go into their lanes,
// where the first of each leads its round trip: nothing is sent here.
func (b *batch) settle(hand func(map[*lane][]*Call)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = map[*lane][]*Call{}
	}
	hand(b.calls)
	if b.open--; b.open > 0 {
		return
	}
	for l, calls := range b.calls {
		if len(calls) > 0 {
			slices.SortFunc(calls, func(a, b *Call) int { return a.place - b.place })
			l.group(calls)
		}
	}
	b.calls = nil
	close(b.sent)
}

// withdraw takes back a call that was handed in, unless it was sent.
func (b *batch) withdraw(l *lane, one *Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.calls[l] {
		if other == one {
			b.calls[l] = append(b.calls[l][:i:i], b.calls[l][i+1:]...)
			return true
		}
	}
	return false
}
