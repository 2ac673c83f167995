package inbox

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
)

// A nodeConn is the connection to one server of a Cluster, for all channels whose slots that
// server has. One goroutine reads; another one writes the subscriptions. So neither the reader
// nor a caller waits for a server that accepts no data.
//
// The server answers in the order of the orders. An error names no channel, so it belongs to
// the first order without an answer. A "sunsubscribe" that nobody asked for means that the
// channel's slot has moved.
type nodeConn struct {
	b      *Sharded
	server string
	ctx    context.Context
	stop   context.CancelFunc
	wake   chan struct{} // signals that there is something to write; holds one signal

	// Guarded by the lock of b.
	channels   map[string]*channel // by name
	unwritten  []order
	unanswered []order     // in the order in which they were written
	linger     *time.Timer // ends a connection without channels
}

// An order is one SSUBSCRIBE or SUNSUBSCRIBE.
type order struct {
	c           *channel
	unsubscribe bool
}

// add subscribes to a channel. Called with the lock.
func (n *nodeConn) add(c *channel) {
	n.channels[c.name], c.conn = c, n
	n.write(order{c: c})
}

// drop takes a channel off the connection. After the last channel, the connection is kept for a
// moment. Called with the lock.
func (n *nodeConn) drop(c *channel) {
	delete(n.channels, c.name)
	c.conn, c.since = nil, time.Time{}
	if len(n.channels) == 0 {
		n.linger.Reset(linger)
	}
}

// end ends the connection, so that another one is made when it is needed. Called with the
// lock.
func (n *nodeConn) end() {
	if n.b.conns[n.server] == n {
		delete(n.b.conns, n.server)
	}
	n.stop()
}

// write passes an order to the writer. Called with the lock.
func (n *nodeConn) write(o order) {
	n.unwritten = append(n.unwritten, o)
	select {
	case n.wake <- struct{}{}:
	default: // it will wake for an earlier order, and take both
	}
}

// run connects, and reads until the connection ends. Its channels then move to another one.
func (n *nodeConn) run(subscribe func(ctx context.Context) call.PubSub) {
	began, worked := time.Now(), false
	defer func() { n.moveOn(began, worked) }() // also if a hook of the client ends the goroutine
	ps := connect(func() call.PubSub { return subscribe(n.ctx) })
	if ps == nil {
		return
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer func() { // also if a hook panics or ends this goroutine
			if _ = recover(); n.ctx.Err() == nil {
				_ = ps.Close() // this ends the reader
			}
		}()
		n.writeAll(ps)
	}()
	err := receive(n.ctx, ps, func(got any, refused error) bool {
		known := n.received(got, refused)
		worked = worked || known && refused == nil
		return known
	})
	if err != nil && n.ctx.Err() == nil {
		n.b.cluster.Notice(err)
	}
	if n.stop(); err != errLocked {
		<-written
	}
}

// moveOn has the channels of a connection that has ended put on another one.
func (n *nodeConn) moveOn(began time.Time, worked bool) {
	b := n.b
	b.mu.Lock()
	defer b.mu.Unlock()
	n.end()
	wait := pause(b.failures[n.server])
	if b.failures[n.server]++; worked {
		// The next one may work at once. The pace applies if this one was cut as soon as it
		// existed.
		delete(b.failures, n.server)
		wait = max(0, pace-time.Since(began))
	}
	all := make([]*channel, 0, len(n.channels))
	for _, c := range n.channels {
		c.conn, c.since = nil, time.Time{}
		all = append(all, c)
	}
	if len(all) == 0 {
		delete(b.failures, n.server)
	} else {
		b.attachAfter(wait, all)
	}
}

// writeAll writes the orders until the connection ends, or one can not be written.
func (n *nodeConn) writeAll(ps call.PubSub) {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.wake:
		}
		for {
			o, ok := n.next()
			if !ok {
				break
			}
			subscribe := ps.SSubscribe
			if o.unsubscribe {
				subscribe = ps.SUnsubscribe
			}
			if subscribe(call.EndedCtx, o.c.name) != nil {
				return
			}
		}
	}
}

// next takes the first order that is not written yet. From then on it awaits its answer.
func (n *nodeConn) next() (o order, ok bool) {
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	if len(n.unwritten) == 0 {
		n.unwritten = nil
		return order{}, false
	}
	o, n.unwritten = n.unwritten[0], n.unwritten[1:]
	n.unanswered = append(n.unanswered, o)
	return o, true
}

// received handles what the server sent: a message, an answer, or an error. It reports whether
// that was expected.
func (n *nodeConn) received(got any, refused error) bool {
	switch m := got.(type) {
	case *redis.Message:
		n.b.message(m.Payload)
		runtime.Gosched() // let the waiter run before the next read
	case *redis.Subscription:
		if m.Kind == "ssubscribe" {
			return n.subscribed()
		}
		n.unsubscribed(m.Channel)
	case nil:
		return n.refused(refused)
	}
	return true
}

// subscribed handles the answer to an SSUBSCRIBE: messages arrive from now on.
func (n *nodeConn) subscribed() bool {
	b := n.b
	b.mu.Lock()
	o, ok := n.answered()
	c := o.c
	exists := ok && c.conn == n
	if exists {
		c.since, c.failures = time.Now(), 0
	}
	b.mu.Unlock()
	if exists {
		b.missed(c.key)
	}
	return ok && !o.unsubscribe
}

// unsubscribed handles the answer to a SUNSUBSCRIBE, or the news that the channel's slot has
// moved. After such news no message arrives any more, so the channel is subscribed to anew.
func (n *nodeConn) unsubscribed(name string) {
	b := n.b
	b.mu.Lock()
	if len(n.unanswered) > 0 && n.unanswered[0].unsubscribe && n.unanswered[0].c.name == name {
		n.unanswered = n.unanswered[1:]
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	// Notice enters the user's client, so it is called without the lock. Meanwhile the channel
	// may be forgotten, and it may then be watched again. In the second case it is subscribed to
	// once more than necessary, which does no harm.
	b.cluster.Notice(errMoved)
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := n.channels[name]; c != nil {
		n.drop(c)
		b.attachSoon([]*channel{c})
	}
}

// refused handles an error of the server. If the server does not have the channel's slot, the
// channel is tried again after a pause, at the server that has the slot by then.
func (n *nodeConn) refused(err error) bool {
	b := n.b
	b.cluster.Notice(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := n.answered()
	if c := o.c; ok && !o.unsubscribe && c.conn == n {
		n.drop(c)
		b.refused(c)
	}
	return ok
}

// answered takes the first order that awaits an answer. Called with the lock.
func (n *nodeConn) answered() (o order, ok bool) {
	if len(n.unanswered) == 0 {
		return order{}, false
	}
	o, n.unanswered = n.unanswered[0], n.unanswered[1:]
	return o, true
}

// errMoved stands for an unsolicited "sunsubscribe".
var errMoved = movedError{}

type movedError struct{}

func (movedError) Error() string { return "MOVED the slot of a channel" }
func (movedError) RedisError()   {}
