package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is what a Sharded needs of the client.
type Cluster interface {
	// Server names the server that has channel's slot, and opens a subscription on
	// channel there. It never blocks; nil: no server is known to have it.
	Server(channel string) (name string, subscribe func(ctx context.Context) *redis.PubSub)
	// Notice is told of errors that may mean that the topology has changed.
	Notice(err error)
}

// Sharded is the subscriptions of a handle on a Cluster: a sharded channel for each
// key that is watched, and one connection for each server that has some of them.
//
// A subscription ends without a word when its connection does, and with an unsolicited
// "sunsubscribe" when its slot moves to another server. Either way the channel is
// subscribed to anew, where its slot is by then, and missed is called as soon as that
// stands: whatever was sent meanwhile is asked for.
type Sharded struct {
	cluster Cluster
	channel func(key string) string
	message func(payload string)
	missed  func(key string)

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu       sync.Mutex // guards what follows, and the fields of channels and lines that say so
	closed   bool
	channels map[string]*channel // by key
	lines    map[string]*line    // by server
	failures map[string]int      // lines to a server in a row that did not work
	active   sync.WaitGroup
}

// channel is the subscription for one key. All but key and name is guarded by the
// lock of its Sharded.
type channel struct {
	key, name string
	users     int
	timer     *time.Timer // ends the lingering
	line      *line       // nil: it waits to be put on one
	since     time.Time   // since when the subscription stands; zero: it does not
	failures  int         // refusals in a row
}

// NewSharded makes the inbox of a handle on a Cluster. channelOf names the channel of
// a key, in the key's slot. message is called for each message, missed whenever
// messages for a key may have been missed before (on every new subscription).
func NewSharded(cluster Cluster, channelOf func(key string) string, message func(payload string), missed func(key string)) *Sharded {
	b := &Sharded{
		cluster: cluster, channel: channelOf, message: message, missed: missed,
		channels: map[string]*channel{}, lines: map[string]*line{}, failures: map[string]int{},
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Watch subscribes to the channel of key, if that is not done, without waiting for it.
// It returns since when the subscription stands, or zero where missed is yet to be
// called for it.
func (b *Sharded) Watch(key string) (since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.channels[key]
	if c == nil {
		c = &channel{key: key, name: b.channel(key)}
		b.channels[key] = c
		b.attachSoon([]*channel{c})
	}
	c.users++
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	return c.since
}

// Unwatch ends one Watch of key. The channel is unsubscribed from a moment after the
// last.
func (b *Sharded) Unwatch(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.channels[key]
	if c == nil {
		return // closed
	}
	if c.users--; c.users > 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(linger, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if c.timer == timer { // else it was watched again
			b.forget(c)
		}
	})
	c.timer = timer
}

// Close ends all subscriptions for good and waits until their goroutines have ended.
func (b *Sharded) Close() {
	b.mu.Lock()
	b.closed = true
	for _, c := range b.channels {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	for _, l := range b.lines {
		l.lingerOver()
	}
	clear(b.channels)
	b.mu.Unlock()
	b.stop()
	b.active.Wait()
}

// forget takes a channel that nobody watches away. Called with the lock.
func (b *Sharded) forget(c *channel) {
	delete(b.channels, c.key)
	if l := c.line; l != nil {
		c.line = nil
		l.remove(c)
	}
}

// attachSoon puts channels on the lines to their servers. The servers are looked up
// without the lock, and so on another goroutine. Called with the lock.
func (b *Sharded) attachSoon(all []*channel) {
	if b.closed {
		return
	}
	b.active.Go(func() {
		for _, c := range all {
			server, subscribe := b.cluster.Server(c.name)
			b.mu.Lock()
			switch {
			case b.closed || b.channels[c.key] != c || c.line != nil: // forgotten meanwhile
			case subscribe == nil:
				b.refused(c)
			default:
				b.attach(c, server, subscribe)
			}
			b.mu.Unlock()
		}
	})
}

// attach puts a channel on the line to its server. Called with the lock.
func (b *Sharded) attach(c *channel, server string, subscribe func(ctx context.Context) *redis.PubSub) {
	l := b.lines[server]
	if l == nil {
		l = &line{b: b, server: server, channels: map[string]*channel{}, wake: make(chan struct{}, 1)}
		l.ctx, l.stop = context.WithCancel(b.ctx)
		b.lines[server] = l
		l.channels[c.name], c.line = c, l
		l.unanswered = []order{{c: c}}
		b.active.Go(func() { l.run(subscribe) })
		return
	}
	l.add(c)
}

// attachAfter puts channels on lines after a pause. Called with the lock.
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

// refused tries again after a pause for a channel that no server had. Called with the
// lock.
func (b *Sharded) refused(c *channel) {
	b.attachAfter(pause(c.failures), []*channel{c})
	c.failures++
}
