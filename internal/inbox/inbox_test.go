package inbox

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

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
		func(ctx context.Context) *redis.PubSub { return behind.Subscribe(ctx, "box") },
		func(m string) { b.messages <- m },
		func() { b.missed <- struct{}{} })
	t.Cleanup(func() { b.Close(); _ = b.rdb.Close() })
	return b
}

func (b *box) tell(t *testing.T, text string) {
	t.Helper()
	redistest.WantErr(t, b.rdb.Publish(t.Context(), "box", text).Err())
	redistest.Expect(t, within(t, b.messages), text, "heard %q")
}

// unsubscribed waits until the server knows of no subscription.
func (b *box) unsubscribed(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); b.rdb.PubSubNumSub(t.Context(), "box").Val()["box"] != 0; {
		redistest.CheckNow(t, !time.Now().After(deadline), "the subscription is still open")
		time.Sleep(10 * time.Millisecond)
	}
}

func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// Every new subscription says that messages may have been missed.
func TestResubscribes(t *testing.T) {
	b := newBox(t)
	b.Watch("")
	for range 3 {
		within(t, b.missed)
		b.tell(t, "hello")
		b.proxy.CloseAll()
	}
	within(t, b.missed)
}

// Hooks of the client run while a subscription is opened: one that panics, or ends its
// goroutine, costs one try.
func TestHookThatEndsItsGoroutineCostsOneTry(t *testing.T) {
	for name, end := range map[string]func(){"panics": func() { panic("a hook") }, "calls Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			subscribe, tries := b.subscribe, 0
			b.subscribe = func(ctx context.Context) *redis.PubSub {
				if tries++; tries <= 2 {
					end()
				}
				return subscribe(ctx)
			}
			b.Watch("")
			within(t, b.missed)
			b.tell(t, "hello")
		})
	}
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
		within(t, b.missed)
		silent.Store(true)
		b.unsubscribed(t)
		silent.Store(false)
		within(t, b.missed)
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

// It stays open for a moment after its last user, and no longer.
func TestClosesWhenUnused(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Watch("")
	within(t, b.missed)
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
	within(t, b.missed)
}

// After Close it stays closed.
func TestCloseIsFinal(t *testing.T) {
	b := newBox(t)
	b.Watch("")
	within(t, b.missed)
	b.Close()
	b.Watch("")
	b.Unwatch("")
	b.active.Wait()
}
