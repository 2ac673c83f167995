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

func (s *permitSite) holds(permits int) {
	s.TB.Helper()
	redistest.Expect(s.TB, s.InUse(), permits, "%d permits are in use")
}

// enter's answers that take nothing.
const (
	enterVoid    = 6
	enterGivenUp = 7
)

// strays is a proxy on which the first enter of a warmed-up handle is held: the
// bytes have left the client and not reached the server.
type strays struct {
	*permitSite
	p      *redistest.Proxy
	h      *semaphore.Semaphore
	enter  *redistest.Fault
	leaves chan struct{} // one for each leave that was answered
	enters chan []int64  // the answers to enters, but for those on the connection of the held one
	late   chan []int64  // those
}

func newStrays(t *testing.T, srv *redistest.Server, opts ...func(*redis.Options)) *strays {
	p := redistest.NewProxy(t, srv.Addr())
	x := &strays{
		permitSite: newPermitSite(t, srv.Client()), p: p,
		leaves: make(chan struct{}, 100), enters: make(chan []int64, 100), late: make(chan []int64, 100),
	}
	x.h = x.closing(p.Client(opts...), semaphore.Config{Limit: 2})
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

// deliver lets the held enter arrive, and returns its answer.
func (x *strays) deliver() int64 {
	x.TB.Helper()
	x.enter.Release()
	return x.answer(x.late)
}

func (x *strays) answer(to <-chan []int64) int64 {
	x.TB.Helper()
	v := redistest.Get(x.TB, "the answer to an enter", to)
	if len(v) == 0 {
		x.TB.Fatal("an enter was answered with an error")
	}
	return v[0]
}

func (x *strays) awaitLeave() {
	x.TB.Helper()
	redistest.Get(x.TB, "the answer to a leave", x.leaves)
}

// nothing says that what arrived late took nothing.
func (x *strays) nothing() {
	x.TB.Helper()
	x.holds(0)
	redistest.Expect(x.TB, x.Queued(), 0, "%d wait")
	x.empty(2, 0)
}

// The enter is on its way when its caller gives up; the leave that follows overtakes it on another connection.
func TestLateEnterOfCancelledCallTakesNothing(t *testing.T) {
	harness.EachServerAtOnce(t, redistest.Shared, func(t *testing.T, srv *redistest.Server) {
		for name, acquire := range map[string]func(h *semaphore.Semaphore, ctx context.Context, key string) (*semaphore.Lease, error){
			"acquire": (*semaphore.Semaphore).Acquire, "try acquire": (*semaphore.Semaphore).TryAcquire,
		} {
			t.Run(name, func(t *testing.T) {
				x := newStrays(t, srv)
				ctx, cancel := context.WithCancel(t.Context())
				done := harness.Start(t, func() (*semaphore.Lease, error) { return acquire(x.h, ctx, x.Key) })
				x.enter.Wait()
				cancel()
				redistest.WantErr(t, done.Within(harness.Slack, "an acquisition").Err, context.Canceled, leasehold.ErrUnavailable)
				x.awaitLeave()
				redistest.Expect(t, x.deliver(), enterGivenUp, "the late enter was answered with %d")
				x.nothing()
			})
		}
	})
}

// The enter's connection timed out; the retry was granted and given back before the first copy arrived.
func TestLateEnterAfterItsRetryWasReleasedTakesNothing(t *testing.T) {
	harness.EachServerAtOnce(t, redistest.Shared, func(t *testing.T, srv *redistest.Server) {
		x := newStrays(t, srv, func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond })
		l := redistest.Must(x.h.Acquire(t.Context(), x.Key))(t)
		x.enter.Wait()
		redistest.Require(t, x.answer(x.enters), 1, "the retry was answered with %d")
		x.holds(1)
		redistest.WantErr(t, l.Release())
		x.holds(0)
		redistest.Expect(t, x.deliver(), enterGivenUp, "the late enter was answered with %d")
		x.nothing()
	})
}

// An enter that is held for so long that its tombstone is gone is void by itself.
func TestEnterIsVoidAfterItsTime(t *testing.T) {
	harness.EachServerAtOnce(t, redistest.Shared, func(t *testing.T, srv *redistest.Server) {
		x := newStrays(t, srv)
		ctx, cancel := context.WithCancel(t.Context())
		done := x.acquiring(ctx, x.h)
		x.enter.Wait()
		cancel()
		redistest.WantErr(t, done.Within(harness.Slack, "an acquisition").Err, context.Canceled)
		x.awaitLeave()
		redistest.Eventually(t, "the tombstone to go", func() bool {
			n, err := x.RDB.Exists(t.Context(), x.Part("alive")).Result()
			return err == nil && n == 0
		})
		redistest.Expect(t, x.deliver(), enterVoid, "the late enter was answered with %d")
		x.nothing()
	})
}
