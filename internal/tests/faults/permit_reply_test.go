package faults

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
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
	enters chan []int64  // the answers to enters, but for those on the connection of the held one
	late   chan []int64  // those
}

func newStrays(t *testing.T, srv *redistest.Server, patience time.Duration, hooks ...redis.Hook) *strays {
	p := redistest.NewProxy(t, srv.Addr())
	x := &strays{
		site: newSite(t, harness.Permits, srv.Client()), p: p,
		leaves: make(chan struct{}, 100), enters: make(chan []int64, 100), late: make(chan []int64, 100),
	}
	rdb := p.Client(func(o *redis.Options) { o.ReadTimeout = patience })
	for _, hook := range hooks {
		rdb.AddHook(hook)
	}
	x.h = x.semaphore(rdb, semaphore.Config{Limit: 2})
	// The first call learns the server's clock and opens the connections.
	redistest.WantErr(t, redistest.Must(x.h.TryAcquire(t.Context(), "other"))(t).Release())
	var held atomic.Int64 // the connection of the first enter from here on
	p.SetHook(func(ev redistest.Event) redistest.Action {
		switch name := harness.Script(ev.Cmd); {
		case name == "enter" && ev.Stage == redistest.OnRequest:
			held.CompareAndSwap(0, int64(ev.Conn))
		case name == "enter" && ev.Stage == redistest.OnReply && held.Load() == int64(ev.Conn):
			x.late <- harness.Integers(ev.Reply)
		case name == "enter" && ev.Stage == redistest.OnReply:
			x.enters <- harness.Integers(ev.Reply)
		case name == "leave" && ev.Stage == redistest.OnReply:
			x.leaves <- struct{}{}
		}
		return redistest.Pass
	})
	x.enter = p.HoldRequest(harness.Does("enter"), 1)
	return x
}

func (x *strays) answer(to <-chan []int64) int64 {
	x.Helper()
	v := redistest.Get(x, "the answer to an enter", to)
	redistest.CheckNow(x, len(v) > 0, "an enter was answered with an error")
	return v[0]
}

// deliver lets the held enter arrive, which is to be answered so and to take nothing.
func (x *strays) deliver(want int64) {
	x.Helper()
	x.enter.Release()
	redistest.Expect(x, x.answer(x.late), want, "the late enter was answered with %d")
	x.holds(0)
	redistest.Expect(x, x.queued(), 0, "%d wait")
	x.empty(2, 0)
}

// The enter is on its way when its caller gives up. The leave that follows overtakes it on another connection, and
// leaves a tombstone. An enter that is held until that is gone is void by itself.
func TestLateEnterOfCancelledCallTakesNothing(t *testing.T) {
	harness.EachServerAtOnce(t, redistest.Shared, func(t *testing.T, srv *redistest.Server) {
		for name, c := range map[string]struct {
			acquire func(h *semaphore.Semaphore, ctx context.Context, key string) (*semaphore.Lease, error)
			answer  int64
		}{
			"acquire":               {(*semaphore.Semaphore).Acquire, enterGivenUp},
			"try acquire":           {(*semaphore.Semaphore).TryAcquire, enterGivenUp},
			"the tombstone is gone": {(*semaphore.Semaphore).Acquire, enterVoid},
		} {
			t.Run(name, func(t *testing.T) {
				x := newStrays(t, srv, 0)
				ctx, cancel := context.WithCancel(t.Context())
				done := harness.Start(t, func() (*semaphore.Lease, error) { return c.acquire(x.h, ctx, x.key) })
				x.enter.Wait()
				cancel()
				redistest.WantErr(t, done.Within(harness.Slack, "an acquisition").Err, context.Canceled, leasehold.ErrUnavailable)
				redistest.Get(t, "the answer to a leave", x.leaves)
				if c.answer == enterVoid {
					redistest.Eventually(t, "the tombstone to go", func() bool {
						return x.RDB.Exists(t.Context(), x.part("alive")).Val() == 0
					})
				}
				x.deliver(c.answer)
			})
		}
	})
}

// The enter has no reply in time. Another copy, by the call or by a hook of the user's, is granted and given back before
// the first one arrives. Where a hook repeats a leave, the permit was held and given back, and Release says so.
func TestLateEnterAfterItsRetryWasReleasedTakesNothing(t *testing.T) {
	again := redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		if send() == nil {
			return nil
		}
		return send()
	})
	harness.EachServerAtOnce(t, redistest.Shared, func(t *testing.T, srv *redistest.Server) {
		for name, c := range map[string]struct {
			ctx   context.Context
			hooks []redis.Hook
		}{
			"by the call":                          {t.Context(), nil},
			"by a hook":                            {t.Context(), []redis.Hook{again}},
			"by a hook, on the caller's goroutine": {context.Background(), []redis.Hook{again}},
		} {
			t.Run(name, func(t *testing.T) {
				x := newStrays(t, srv, 200*time.Millisecond, c.hooks...)
				l := redistest.Must(x.h.Acquire(c.ctx, x.key))(t)
				x.enter.Wait()
				redistest.Require(t, x.answer(x.enters), 1, "the second copy was answered with %d")
				x.holds(1)
				redistest.WantErr(t, l.Release())
				x.holds(0)
				x.deliver(enterGivenUp)
				if c.hooks != nil {
					l = redistest.Must(x.h.Acquire(c.ctx, x.key))(t)
					lost := x.p.EatReply(harness.Does("leave"), 1)
					redistest.Expect(t, l.Release(), nil, "Release of a permit that was held: %v")
					lost.Wait()
				}
			})
		}
	})
}
