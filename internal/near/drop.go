package near

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// acks are the acknowledgements that wait to be sent to one server. The first is sent at once. While calls are
// under way, those that come are sent together, when a call ends or after a short pause: a reply may take long.
type acks struct {
	waiting  []loads.Drop
	underWay int // calls
}

const ackPause = 5 * time.Millisecond

// onDrop drops the copy of a key because an invalidation of another handle says so. It first
// marks the copy and the near read under way, and acknowledges then: from the acknowledgement
// on, the invalidation may return.
//
// The message may be a repeated one, may concern a key that this handle holds no copy of any
// more, or may be forged. It is acknowledged all the same: nothing is left that could be served.
func (c *Cache) onDrop(d loads.Drop) {
	node := c.client.Node(d.Near)
	c.mu.Lock()
	if s := c.byNear[d.Near]; s != nil {
		c.outdate(s)
	}
	q := c.acks[node]
	if q == nil {
		q = &acks{}
		c.acks[node] = q
	}
	if q.underWay == 0 && c.closed {
		c.mu.Unlock()
		return // Close takes the registrations back
	}
	delete(c.loose, d.Near) // the acknowledgement takes it back
	var calls []*call.Call
	if q.waiting = append(q.waiting, d); q.underWay == 0 {
		calls = c.acknowledge(q)
	} else if len(q.waiting) == 1 {
		time.AfterFunc(ackPause, func() { c.goOn(q, 0) })
	}
	c.mu.Unlock()
	c.client.Start(context.Background(), nil, calls...)
}

// goOn sends what waits, after so many calls have ended.
func (c *Cache) goOn(q *acks, ended int) {
	c.mu.Lock()
	q.underWay -= ended
	calls := c.acknowledge(q)
	c.mu.Unlock()
	c.client.Start(context.Background(), nil, calls...)
}

// acknowledge prepares the acknowledgements that wait. If one is lost, the reader is told again. Called with the lock.
func (c *Cache) acknowledge(q *acks) (calls []*call.Call) {
	byHandle := map[string][]loads.Drop{}
	for _, d := range q.waiting {
		byHandle[d.Handle] = append(byHandle[d.Handle], d)
	}
	q.waiting = nil
	for _, drops := range byHandle {
		calls = append(calls, c.leaves(drops)...)
	}
	for _, one := range calls {
		one.Done = func([]int64, error) {
			c.goOn(q, 1)
			c.acking.Done()
		}
	}
	q.underWay += len(calls)
	c.acking.Add(len(calls))
	return calls
}

// leaves prepares the calls that take registrations back, and acknowledge drops to one handle.
func (c *Cache) leaves(drops []loads.Drop) (calls []*call.Call) {
	most := loads.MostReaders
	if c.client.IsCluster() {
		most = 1 // each key is in a slot of its own
	}
	for some := range slices.Chunk(drops, most) {
		calls = append(calls, loads.NearLeave(c.line.handle, some))
	}
	return calls
}

// Close drops all copies and takes their registrations back, so that no invalidation waits for
// this handle. It first waits for the near reads under way, because they may register. If ctx
// ends before, Close returns false, the rest goes on in the background, and the registrations
// end by themselves, after NearFor at most. c may be nil.
func (c *Cache) Close(ctx context.Context) (all bool) {
	if c == nil {
		return true
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.reading.Wait()
		c.acking.Wait()
		c.takeBack()
	}()
	select {
	case <-done:
		all = true
	case <-ctx.Done():
	}
	c.mu.Lock()
	clear(c.watches)
	c.mu.Unlock()
	return all
}

// takeBack removes all copies, and the registrations that may last.
func (c *Cache) takeBack() {
	c.mu.Lock()
	now := c.now()
	byNode := map[string][]loads.Drop{}
	add := func(near string, until int64) {
		if now < until+int64(c.cfg.For)/drift && !c.client.Away(near) {
			node := c.client.Node(near)
			byNode[node] = append(byNode[node], loads.Drop{Near: near})
		}
	}
	for near, until := range c.loose {
		add(near, until)
	}
	for _, s := range c.slots {
		if s.copy != nil {
			add(s.near, s.copy.lease)
		}
		c.outdate(s)
	}
	clear(c.loose)
	c.mu.Unlock()
	var calls []*call.Call
	for _, all := range byNode {
		calls = append(calls, c.leaves(all)...)
	}
	c.client.Send(context.Background(), calls)
}
