package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Cluster has the methods of the client that a Sharded needs.
type Cluster interface {
	// Server returns the name of the server that has channel's slot, and a function that opens
	// a subscription to channel there. It never blocks. The function is nil if no server is
	// known to have the slot.
	Server(channel string) (name string, subscribe func(ctx context.Context) call.PubSub)
	// Notice is called with errors that may mean that the topology has changed.
	Notice(err error)
}

// Sharded keeps the subscriptions of a handle on a Cluster. Each watched key has a sharded
// channel, and each server that has some of the channels has one connection.
//
// A subscription ends silently when its connection does, and with an unsolicited
// "sunsubscribe" when its slot moves to another server. In both cases the channel is
// subscribed to again, at the server that has its slot by then. missed is called as soon as
// the new subscription exists, so that the handle asks for anything that was published in the
// meantime.
type Sharded struct {
	cluster Cluster
	channel func(key string) string
	message func(payload string)
	missed  func(key string)

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu       sync.Mutex // guards the fields below, and those of channels and nodeConns that say so
	closed   bool
	channels map[string]*channel  // by key
	conns    map[string]*nodeConn // by server
	failures map[string]int       // by server: consecutive connections that did not work
	active   sync.WaitGroup
}

// A channel is the subscription for one key. Its Sharded's lock guards all fields but key and
// name.
type channel struct {
	key, name string
	users     int
	linger    *time.Timer // forgets the channel, if nobody watches it
	conn      *nodeConn   // nil: it waits to be put on one
	since     time.Time   // the time since which the subscription exists; zero: it does not
	failures  int         // consecutive refusals
}

// NewSharded makes the inbox of a handle on a Cluster. channelOf returns the name of a key's
// channel, in the key's slot. The inbox calls message for each message, and missed whenever
// earlier messages for a key may have been missed, which is on every new subscription.
func NewSharded(cluster Cluster, channelOf func(key string) string, message func(payload string), missed func(key string)) *Sharded {
	b := &Sharded{
		cluster: cluster, channel: channelOf, message: message, missed: missed,
		channels: map[string]*channel{}, conns: map[string]*nodeConn{}, failures: map[string]int{},
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Watch subscribes to the channel of key, unless that is done, and does not wait for it. It
// returns the time since which the subscription exists, or the zero time if missed will still
// be called for it.
func (b *Sharded) Watch(key string) (since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.channels[key]
	if c == nil {
		c = &channel{key: key, name: b.channel(key)}
		c.linger = lingering(&b.mu, func() {
			if c.users == 0 && b.channels[key] == c {
				b.forget(c)
			}
		})
		b.channels[key] = c
		b.attachSoon([]*channel{c})
	}
	c.users++
	return c.since
}

// Unwatch ends one Watch of key. After the last one, the channel is unsubscribed from a moment
// later.
func (b *Sharded) Unwatch(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.channels[key]
	if c == nil {
		return // closed
	}
	if c.users--; c.users == 0 {
		c.linger.Reset(linger)
	}
}

// Close ends all subscriptions for good and waits until their goroutines have ended.
func (b *Sharded) Close() {
	b.mu.Lock()
	b.closed = true
	for _, c := range b.channels {
		c.linger.Stop()
	}
	for _, n := range b.conns {
		n.linger.Stop()
	}
	clear(b.channels)
	b.mu.Unlock()
	b.stop()
	b.active.Wait()
}

// forget removes a channel that nobody watches. Called with the lock.
func (b *Sharded) forget(c *channel) {
	delete(b.channels, c.key)
	if n := c.conn; n != nil {
		n.drop(c)
		n.write(order{c: c, unsubscribe: true})
	}
}

// attachSoon puts channels on the connections to their servers. It does so on another
// goroutine, because the servers are looked up without the lock. Called with the lock.
func (b *Sharded) attachSoon(all []*channel) {
	if b.closed {
		return
	}
	b.active.Go(func() {
		for _, c := range all {
			server, subscribe := b.cluster.Server(c.name)
			b.mu.Lock()
			switch {
			case b.closed || b.channels[c.key] != c || c.conn != nil: // forgotten in the meantime
			case subscribe == nil:
				b.refused(c)
			default:
				b.attach(c, server, subscribe)
			}
			b.mu.Unlock()
		}
	})
}

// attach puts a channel on the connection to its server. Called with the lock.
func (b *Sharded) attach(c *channel, server string, subscribe func(ctx context.Context) call.PubSub) {
	n := b.conns[server]
	if n == nil {
		n = &nodeConn{b: b, server: server, channels: map[string]*channel{}, wake: make(chan struct{}, 1)}
		n.ctx, n.stop = context.WithCancel(b.ctx)
		n.linger = lingering(&b.mu, func() {
			if len(n.channels) == 0 {
				n.end()
			}
		})
		b.conns[server] = n
		n.channels[c.name], c.conn = c, n
		n.unanswered = []order{{c: c}} // subscribe, which run calls, sends this first order itself
		b.active.Go(func() { n.run(subscribe) })
		return
	}
	n.add(c)
}

// attachAfter puts channels on connections after a pause. Called with the lock.
func (b *Sharded) attachAfter(pause time.Duration, all []*channel) {
	if b.closed {
		return
	}
	time.AfterFunc(pause, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.attachSoon(all)
	})
}

// refused schedules another try, after a pause, for a channel that no server had. Called with
// the lock.
func (b *Sharded) refused(c *channel) {
	b.attachAfter(pause(c.failures), []*channel{c})
	c.failures++
}
