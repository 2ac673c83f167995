package inbox

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// A line is the connection to one server of a Cluster, for all channels whose slots that
// server has. One goroutine reads; another one writes the subscriptions. So neither the reader
// nor a caller waits for a server that accepts no data.
//
// The server answers in the order of the orders. An error names no channel, so it belongs to
// the first order without an answer. A "sunsubscribe" that nobody asked for means that the
// channel's slot has moved.
type line struct {
	b      *Sharded
	server string
	ctx    context.Context
	stop   context.CancelFunc
	wake   chan struct{} // signals that there is something to write; holds one signal

	// Guarded by the lock of b.
	ended      bool
	channels   map[string]*channel // by name
	unwritten  []order
	unanswered []order     // in the order in which they were written
	timer      *time.Timer // ends a line without channels
}

// An order is one SSUBSCRIBE or SUNSUBSCRIBE.
type order struct {
	c           *channel
	unsubscribe bool
}

// add subscribes to a channel. Called with the lock.
func (l *line) add(c *channel) {
	l.lingerOver()
	l.channels[c.name], c.line = c, l
	l.write(order{c: c})
}

// remove unsubscribes from a channel. After the last channel, the connection is kept for a
// moment. Called with the lock.
func (l *line) remove(c *channel) {
	delete(l.channels, c.name)
	l.write(order{c: c, unsubscribe: true})
	if len(l.channels) > 0 || l.ended {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(linger, func() {
		l.b.mu.Lock()
		defer l.b.mu.Unlock()
		if l.timer == timer { // otherwise it is in use again
			l.end()
		}
	})
	l.timer = timer
}

func (l *line) lingerOver() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// end ends the line, so that another one is made when it is needed. Called with the lock.
func (l *line) end() {
	l.lingerOver()
	l.ended = true
	if l.b.lines[l.server] == l {
		delete(l.b.lines, l.server)
	}
	l.stop()
}

// write passes an order to the writer. Called with the lock.
func (l *line) write(o order) {
	l.unwritten = append(l.unwritten, o)
	select {
	case l.wake <- struct{}{}:
	default: // it will wake for an earlier order, and take both
	}
}

// run connects, and reads until the connection ends. Its channels then move to another line.
func (l *line) run(subscribe func(ctx context.Context) *redis.PubSub) {
	b, began, worked := l.b, time.Now(), false
	var err error
	if ps := connect(func() *redis.PubSub { return subscribe(l.ctx) }); ps != nil {
		written := make(chan struct{})
		go func() {
			defer close(written)
			l.writeAll(ps)
		}()
		err = receive(l.ctx, ps, func(got any, refused error) bool {
			known := l.received(got, refused)
			worked = worked || known && refused == nil
			return known
		})
		l.stop()
		<-written
	}
	if err != nil && l.ctx.Err() == nil {
		b.cluster.Notice(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.end()
	wait := pause(b.failures[l.server])
	if b.failures[l.server]++; worked {
		// The next one may work at once. The pace applies if this one was cut as soon as it
		// existed.
		delete(b.failures, l.server)
		wait = max(0, pace-time.Since(began))
	}
	all := make([]*channel, 0, len(l.channels))
	for _, c := range l.channels {
		c.line, c.since = nil, time.Time{}
		all = append(all, c)
	}
	if len(all) == 0 {
		delete(b.failures, l.server)
	} else {
		b.attachAfter(wait, all)
	}
}

// writeAll writes the orders until the line ends.
func (l *line) writeAll(ps *redis.PubSub) {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.wake:
		}
		for {
			o, ok := l.next()
			if !ok {
				break
			}
			subscribe := ps.SSubscribe
			if o.unsubscribe {
				subscribe = ps.SUnsubscribe
			}
			if subscribe(endedCtx, o.c.name) != nil {
				_ = ps.Close() // this ends the reader
				return
			}
		}
	}
}

// next takes the first order that is not written yet. From then on it awaits its answer.
func (l *line) next() (o order, ok bool) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if len(l.unwritten) == 0 {
		l.unwritten = nil
		return order{}, false
	}
	o, l.unwritten = l.unwritten[0], l.unwritten[1:]
	l.unanswered = append(l.unanswered, o)
	return o, true
}

// received handles what the server sent: a message, an answer, or an error. It reports whether
// that was expected.
func (l *line) received(got any, refused error) bool {
	switch m := got.(type) {
	case *redis.Message:
		l.b.message(m.Payload)
		runtime.Gosched() // let the waiter run before the next read
	case *redis.Subscription:
		if m.Kind == "ssubscribe" {
			return l.subscribed()
		}
		l.unsubscribed(m.Channel)
	case nil:
		return l.refused(refused)
	}
	return true
}

// subscribed handles the answer to an SSUBSCRIBE: messages arrive from now on.
func (l *line) subscribed() bool {
	b := l.b
	b.mu.Lock()
	o, ok := l.answered()
	c := o.c
	stands := ok && c.line == l
	if stands {
		c.since, c.failures = time.Now(), 0
	}
	b.mu.Unlock()
	if stands {
		b.missed(c.key)
	}
	return ok && !o.unsubscribe
}

// unsubscribed handles the answer to a SUNSUBSCRIBE, or the news that the channel's slot has
// moved. After such news no message arrives any more, so the channel is subscribed to anew.
func (l *line) unsubscribed(name string) {
	b := l.b
	b.mu.Lock()
	if len(l.unanswered) > 0 && l.unanswered[0].unsubscribe && l.unanswered[0].c.name == name {
		l.unanswered = l.unanswered[1:]
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	b.cluster.Notice(errMoved)
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := l.channels[name]; c != nil {
		delete(l.channels, name)
		c.line, c.since = nil, time.Time{}
		b.attachSoon([]*channel{c})
	}
}

// refused handles an error of the server. If the server does not have the channel's slot, the
// channel is tried again after a pause, at the server that has the slot by then.
func (l *line) refused(err error) bool {
	b := l.b
	b.cluster.Notice(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := l.answered()
	if c := o.c; ok && !o.unsubscribe && c.line == l {
		delete(l.channels, c.name)
		c.line, c.since = nil, time.Time{}
		b.refused(c)
	}
	return ok
}

// answered takes the first order that awaits an answer. Called with the lock.
func (l *line) answered() (o order, ok bool) {
	if len(l.unanswered) == 0 {
		return order{}, false
	}
	o, l.unanswered = l.unanswered[0], l.unanswered[1:]
	return o, true
}

// errMoved stands for an unsolicited "sunsubscribe".
var errMoved = movedError{}

type movedError struct{}

func (movedError) Error() string { return "MOVED the slot of a channel" }
func (movedError) RedisError()   {}
