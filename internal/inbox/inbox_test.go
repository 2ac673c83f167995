package inbox

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// box is an inbox in front of a server, and what it heard.
type box struct {
	*Inbox
	rdb      *redis.Client
	proxy    *redistest.Proxy
	messages chan string
	missed   chan struct{}
}

func newBox(t *testing.T) *box {
	t.Helper()
	mini := redistest.Mini(t)
	proxy := redistest.NewProxy(t, mini.Addr())
	b := boxOn(t, redis.NewClient(&redis.Options{Addr: mini.Addr()}), proxy.Client())
	b.proxy = proxy
	return b
}

// boxOn makes an inbox of the client behind; rdb is not disturbed.
func boxOn(t *testing.T, rdb, behind *redis.Client) *box {
	b := &box{rdb: rdb, messages: make(chan string, 10), missed: make(chan struct{}, 10)}
	b.Inbox = New(
		func(ctx context.Context) call.PubSub { return behind.Subscribe(ctx, "box") },
		func(m string) { b.messages <- m },
		func() { b.missed <- struct{}{} })
	t.Cleanup(func() { b.Close(); _ = b.rdb.Close() })
	return b
}

func (b *box) tell(t *testing.T, text string) {
	t.Helper()
	redistest.WantErr(t, b.rdb.Publish(t.Context(), "box", text).Err())
	redistest.Expect(t, redistest.Get(t, "a message", b.messages), text, "heard %q")
}

// unsubscribed waits until the server knows of no subscription.
func (b *box) unsubscribed(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, "the end of the subscription", func() bool { return b.rdb.PubSubNumSub(t.Context(), "box").Val()["box"] == 0 })
}

// Hooks of the client run while a subscription is opened, and when go-redis notices that a connection
// is broken: one that panics, ends its goroutine, or returns an error that panics, costs one try.
func TestHookThatEndsItsGoroutineCostsOneTry(t *testing.T) {
	took := map[string]time.Duration{}
	for name, end := range map[string]func() error{
		"panics": func() error { panic("a hook") }, "calls Goexit": func() error { runtime.Goexit(); return nil },
		"returns a nil pointer": func() error { return (*net.OpError)(nil) },
	} {
		breaking := func(t *testing.T, addr string, breaks *atomic.Int32) (*redistest.Proxy, *redis.Client) {
			proxy := redistest.NewProxy(t, addr)
			return proxy, proxy.Client(func(o *redis.Options) {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if breaks.Add(-1) >= 0 {
						return nil, end()
					}
					return (&net.Dialer{}).DialContext(ctx, network, addr)
				}
			})
		}
		t.Run(name, func(t *testing.T) {
			mini, breaks := redistest.Mini(t), atomic.Int32{}
			proxy, behind := breaking(t, mini.Addr(), &breaks)
			b := boxOn(t, redis.NewClient(&redis.Options{Addr: mini.Addr()}), behind)
			breaks.Store(2)
			began := time.Now()
			b.Watch("")
			for range 5 {
				redistest.Get(t, "a new subscription", b.missed)
				breaks.Store(3)
				proxy.CloseAll()
			}
			redistest.Get(t, "a new subscription", b.missed)
			took[name] = time.Since(began)
			b.tell(t, "hello")
		})
		t.Run(name+" in a Cluster", func(t *testing.T) {
			t.Parallel()
			breaks := atomic.Int32{}
			proxy, behind := breaking(t, redistest.StartServer(t, redistest.Newest(t)).Addr(), &breaks)
			b, f, missed := onOne(t, behind)
			breaks.Store(2)
			b.Watch("k")
			for range 3 {
				redistest.Get(t, "a new subscription", missed)
				breaks.Store(3)
				proxy.CloseAll()
			}
			redistest.Get(t, "a new subscription", missed)
			proxy.CloseAll() // which may be due to a failover
			redistest.Get(t, "a new subscription", missed)
			f.Lock()
			defer f.Unlock()
			redistest.Check(t, len(f.noticed) > 0 && f.noticed[len(f.noticed)-1] != errLocked, "noticed %v", f.noticed)
		})
	}
	redistest.AtMost(t, took["calls Goexit"]-took["panics"], 4*time.Second, "it takes %v longer if hooks call Goexit: what worked counts as failed")
}

// A network that swallows everything is noticed, though it closes nothing.
func TestSilentNetworkIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		var silent atomic.Bool
		b := boxOn(t, client(), client(func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				return muted{c, &silent}, err
			}
		}))
		b.Watch("")
		redistest.Get(t, "a new subscription", b.missed)
		silent.Store(true)
		b.unsubscribed(t)
		silent.Store(false)
		redistest.Get(t, "a new subscription", b.missed)
		b.tell(t, "again")
	})
}

// muted is a connection from which nothing comes while it is silent.
type muted struct {
	net.Conn
	silent *atomic.Bool
}

func (c muted) Read(b []byte) (int, error) {
	for {
		if n, err := c.Conn.Read(b); err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

// It stays open for a moment after its last user, and no longer. After Close it stays closed.
func TestClosesWhenUnused(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Watch("")
	redistest.Get(t, "a new subscription", b.missed)
	for gap := linger; gap > linger/2; { // else the machine stood still, and it may have been closed
		for len(b.missed) > 0 {
			<-b.missed
		}
		began := time.Now()
		b.Unwatch("")
		b.Watch("") // at once: the same subscription
		gap = time.Since(began)
	}
	b.tell(t, "still there")
	b.Unwatch("")
	b.unsubscribed(t)
	redistest.Expect(t, len(b.missed), 0, "it subscribed again although it was in use")
	b.active.Wait()
	b.Watch("")
	redistest.Get(t, "a new subscription", b.missed)
	b.Close()
	b.Watch("")
	b.Unwatch("")
	b.active.Wait()
}

// A subscription, a channel and a connection that are used again within the moment outlast it.
func TestUsedAgainIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(opening, nil, nil)
		b.Watch("")
		b.Unwatch("")
		b.Watch("")
		sharded := NewSharded(oneServer{}, func(key string) string { return key }, nil, nil)
		sharded.Watch("a")
		synctest.Wait()
		connection := sharded.conns["server"]
		sharded.Unwatch("a")
		time.Sleep(linger + linger/2) // the channel is gone, and the connection is without one
		sharded.Watch("b")
		sharded.Unwatch("b")
		sharded.Watch("b")
		time.Sleep(2 * linger)
		synctest.Wait()
		redistest.Check(t, b.stop != nil, "the subscription has ended")
		redistest.Check(t, sharded.channels["a"] == nil && sharded.channels["b"] != nil, "channels: %v; want that of b", sharded.channels)
		redistest.Check(t, connection != nil && sharded.conns["server"] == connection, "the connection has ended")
		b.Close()
		sharded.Close()
	})
}

// oneServer has all channels, and its subscriptions are never ready.
type oneServer struct{}

func (oneServer) Server(string) (string, func(ctx context.Context) call.PubSub) {
	return "server", opening
}
func (oneServer) Notice(error) {}

func opening(ctx context.Context) call.PubSub {
	<-ctx.Done()
	return nil
}

// The connection breaks before the subscription is written. go-redis then makes another one and subscribes to nothing
// on it. The inbox notices, although that connection works.
func TestSubscriptionThatWasNotWritten(t *testing.T) {
	breaking := func(o *redis.Options) {
		dial, breaks := o.Dialer, new(atomic.Bool)
		if dial == nil {
			dial = (&net.Dialer{}).DialContext
		}
		breaks.Store(true)
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return unwritten{c, breaks}, err
		}
	}
	t.Run("one server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, client := redistest.Bubble(t)
			b := boxOn(t, client(), client(breaking))
			b.Watch("")
			redistest.Get(t, "a new subscription", b.missed)
			b.tell(t, "hello")
			time.Sleep(time.Minute)
			redistest.Expect(t, len(b.missed), 0, "it was broken off %d times")
		})
	})
	t.Run("a Cluster", func(t *testing.T) {
		t.Parallel()
		b, _, missed := onOne(t, redistest.StartServer(t, redistest.Newest(t)).Client(breaking))
		b.Watch("k")
		redistest.Get(t, "a new subscription", missed)
	})
}

// unwritten is a connection that breaks when a subscription is to be written, the first time.
type unwritten struct {
	net.Conn
	breaks *atomic.Bool
}

func (c unwritten) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("subscribe")) && c.breaks.Swap(false) {
		_ = c.Close()
	}
	return c.Conn.Write(p)
}
