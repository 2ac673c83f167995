package semaphore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// enter's answers that take nothing.
const (
	enterVoid    = 6
	enterGivenUp = 7
)

// strays is a proxy on which the first enter of a warmed-up handle is held: the
// bytes have left the client and not reached the server.
type strays struct {
	*site
	p      *redistest.Proxy
	h      *semaphore.Semaphore
	enter  *redistest.Fault
	leaves chan struct{} // one for each leave that was answered
	enters chan []int64  // the answers to enters
}

func newStrays(t *testing.T, srv *redistest.Server, opts ...func(*redis.Options)) *strays {
	p := redistest.NewProxy(t, srv.Addr())
	x := &strays{
		site: newSite(t, srv.Client()), p: p,
		leaves: make(chan struct{}, 100), enters: make(chan []int64, 100),
	}
	x.h = x.closing(p.Client(opts...), semaphore.Config{Limit: 2})
	// The first call learns the server's clock and opens the connections.
	l, err := x.h.TryAcquire(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnReply {
			switch script(ev.Cmd) {
			case "leave":
				x.leaves <- struct{}{}
			case "enter":
				x.enters <- integers(ev.Reply)
			}
		}
		return redistest.Pass
	})
	x.enter = p.HoldRequest(does("enter"), 1)
	return x
}

// deliver lets the held enter arrive, and returns its answer.
func (x *strays) deliver() int64 {
	x.tb.Helper()
	x.enter.Release()
	return x.answer()
}

func (x *strays) answer() int64 {
	x.tb.Helper()
	select {
	case v := <-x.enters:
		if len(v) > 0 {
			return v[0]
		}
		x.tb.Fatal("an enter was answered with an error")
	case <-time.After(10 * time.Second):
		x.tb.Fatal("an enter was never answered")
	}
	return 0
}

func (x *strays) awaitLeave() {
	x.tb.Helper()
	select {
	case <-x.leaves:
	case <-time.After(10 * time.Second):
		x.tb.Fatal("no leave was answered")
	}
}

// nothing says that what arrived late took nothing.
func (x *strays) nothing() {
	x.tb.Helper()
	x.holds(0)
	if n := x.queued(); n != 0 {
		x.tb.Errorf("%d wait", n)
	}
	x.empty(2, 0)
}

// The enter is on its way when its caller gives up; the leave that follows
// overtakes it on another connection.
func TestLateEnterOfCancelledCallTakesNothing(t *testing.T) {
	eachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		for name, acquire := range map[string]func(h *semaphore.Semaphore, ctx context.Context, key string) (*semaphore.Lease, error){
			"acquire": (*semaphore.Semaphore).Acquire, "try acquire": (*semaphore.Semaphore).TryAcquire,
		} {
			t.Run(name, func(t *testing.T) {
				x := newStrays(t, srv)
				ctx, cancel := context.WithCancel(t.Context())
				done := acquiring(func() (*semaphore.Lease, error) { return acquire(x.h, ctx, x.key) })
				x.enter.Wait()
				cancel()
				isErr(t, name, within(t, time.Second, done).err, context.Canceled, leasehold.ErrUnavailable)
				x.awaitLeave()
				if code := x.deliver(); code != enterGivenUp {
					t.Errorf("the late enter was answered with %d; want %d", code, enterGivenUp)
				}
				x.nothing()
			})
		}
	})
}

// The caller gave up with all others' permits in use: the late enter takes no
// place in the queue either.
func TestLateEnterTakesNoPlace(t *testing.T) {
	eachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		x := newStrays(t, srv)
		other := x.closing(x.rdb, semaphore.Config{Limit: 2})
		all, err := other.AcquireN(t.Context(), x.key, 2)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := acquiring(func() (*semaphore.Lease, error) { return x.h.Acquire(ctx, x.key) })
		x.enter.Wait()
		cancel()
		isErr(t, "acquire", within(t, time.Second, done).err, context.Canceled)
		x.awaitLeave()
		x.deliver()
		if n := x.queued(); n != 0 {
			t.Errorf("%d wait", n)
		}
		if err := all.Release(); err != nil {
			t.Error(err)
		}
		x.nothing()
	})
}

// The enter's connection timed out; the retry was granted and given back before
// the first copy arrived.
func TestLateEnterAfterItsRetryWasReleasedTakesNothing(t *testing.T) {
	eachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		x := newStrays(t, srv, func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond })
		l, err := x.h.Acquire(t.Context(), x.key)
		if err != nil {
			t.Fatal(err)
		}
		x.enter.Wait()
		if code := x.answer(); code != 1 {
			t.Fatalf("the retry was answered with %d", code)
		}
		x.holds(1)
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		x.holds(0)
		if code := x.deliver(); code != enterGivenUp {
			t.Errorf("the late enter was answered with %d; want %d", code, enterGivenUp)
		}
		x.nothing()
	})
}

// The first copy arrives while what its retry was granted is held.
func TestLateEnterBesideItsRetryTakesNothingMore(t *testing.T) {
	eachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		x := newStrays(t, srv, func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond })
		l, err := x.h.Acquire(t.Context(), x.key)
		if err != nil {
			t.Fatal(err)
		}
		x.answer()
		if code := x.deliver(); code != 1 {
			t.Errorf("the late enter was answered with %d; want 1, granted as before", code)
		}
		x.holds(1)
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		x.nothing()
	})
}

// The handle is closed while an enter is on its way.
func TestLateEnterOfClosedHandleTakesNothing(t *testing.T) {
	eachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		x := newStrays(t, srv)
		done := acquiring(func() (*semaphore.Lease, error) { return x.h.Acquire(t.Context(), x.key) })
		x.enter.Wait()
		var closing sync.WaitGroup
		closing.Go(func() { closeHandle(t, x.h) })
		isErr(t, "acquire", within(t, time.Second, done).err, leasehold.ErrClosed)
		x.enter.Release()
		closing.Wait()
		x.nothing()
	})
}

// An enter that is held for so long that its tombstone is gone is void by
// itself.
func TestEnterIsVoidAfterItsTime(t *testing.T) {
	eachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		x := newStrays(t, srv)
		ctx, cancel := context.WithCancel(t.Context())
		done := acquiring(func() (*semaphore.Lease, error) { return x.h.Acquire(ctx, x.key) })
		x.enter.Wait()
		cancel()
		isErr(t, "acquire", within(t, time.Second, done).err, context.Canceled)
		x.awaitLeave()
		until(t, 10*time.Second, func() error {
			n, err := x.rdb.Exists(context.Background(), x.part("alive")).Result()
			if err == nil && n != 0 {
				err = errors.New("the tombstone is there")
			}
			return err
		})
		if code := x.deliver(); code != enterVoid {
			t.Errorf("the late enter was answered with %d; want %d", code, enterVoid)
		}
		x.nothing()
	})
}
