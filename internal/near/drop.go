package near

import (
	"context"
	"slices"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// acks are the acknowledgements that wait to be sent to one server. One goroutine sends them: the
// first at once, and those that come meanwhile together.
type acks struct{ waiting []loads.Drop }

// onDrop drops the copy of a key because an invalidation of another handle says so. It first
// marks the copy and the near read under way, and acknowledges then: from the acknowledgement
// on, the invalidation may return.
//
// The message may be a repeated one, may concern a key that this handle holds no copy of any
// more, or may be forged. It is acknowledged all the same: nothing is left that could be served.
func (c *Cache) onDrop(d loads.Drop) {
	node := c.client.Node(d.Near)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byNear[d.Near]; s != nil {
		c.outdate(s)
	}
	q := c.acks[node]
	if q == nil && c.closed {
		return // Close takes the registrations back
	}
	delete(c.loose, d.Near) // the acknowledgement takes it back
	if q != nil {
		q.waiting = append(q.waiting, d)
		return
	}
	q = &acks{waiting: []loads.Drop{d}}
	c.acks[node] = q
	c.acking.Go(func() { c.acknowledge(node, q) })
}

// acknowledge sends acknowledgements until none waits. If one is lost, the reader is told again.
func (c *Cache) acknowledge(node string, q *acks) {
	done := false
	defer func() {
		if !done { // a hook ended this goroutine: those that wait are sent by another one
			c.acking.Go(func() { c.acknowledge(node, q) })
		}
	}()
	for {
		c.mu.Lock()
		waiting := q.waiting
		if q.waiting = nil; len(waiting) == 0 {
			delete(c.acks, node)
			c.mu.Unlock()
			done = true
			return
		}
		c.mu.Unlock()
		byHandle := map[string][]loads.Drop{}
		for _, d := range waiting {
			byHandle[d.Handle] = append(byHandle[d.Handle], d)
		}
		var calls []*call.Call
		for _, drops := range byHandle {
			calls = append(calls, c.leaves(drops)...)
		}
		if len(calls) == 1 { // on this goroutine, which is quicker
			_, _ = c.client.Do(context.Background(), calls[0])
		} else {
			c.client.Send(context.Background(), calls)
		}
	}
}

// perLeave is how many keys one call names. On a Cluster each key is in a slot of its own.
func (c *Cache) perLeave() int {
	if c.client.IsCluster() {
		return 1
	}
	return loads.MostReaders
}

// leaves prepares the calls that acknowledge drops to one handle.
func (c *Cache) leaves(drops []loads.Drop) (calls []*call.Call) {
	for some := range slices.Chunk(drops, c.perLeave()) {
		near := make([]string, len(some))
		for i, d := range some {
			near[i] = d.Near
		}
		calls = append(calls, loads.NearLeave(near, c.line.handle, some))
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
	byNode := map[string][]string{}
	add := func(near string, until int64) {
		if now < until+int64(c.cfg.For)/drift {
			node := c.client.Node(near)
			byNode[node] = append(byNode[node], near)
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
	for node, all := range byNode {
		if c.client.Away(all[0]) {
			continue
		}
		for some := range slices.Chunk(all, c.perLeave()) {
			one := loads.NearLeave(some, c.line.handle, nil)
			one.Node = node
			calls = append(calls, one)
		}
	}
	if len(calls) > 0 {
		c.client.Send(context.Background(), calls)
	}
}
