package faults

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// lifeTTL leaves time for a renewal to be sent again, several times, on a busy machine.
const lifeTTL = 3 * time.Second

// loser is a permitSite at which one reply is lost.
type loser struct {
	*permitSite
	*harness.Loser
}

// lives are leases from the first command to the last, and how many there are.
var lives = []struct {
	name   string
	run    func(x loser)
	leases int
}{
	{"alone", liveAlone, 1},
	{"handed over in the process", func(x loser) {
		h := x.closing(x.Client(), semaphore.Config{Limit: 2, TTL: lifeTTL})
		handOver(x, h, h)
	}, 2},
	{"handed over to another process", func(x loser) {
		cfg := semaphore.Config{Limit: 2, TTL: lifeTTL}
		handOver(x, x.closing(x.Client(), cfg), x.closing(x.Client(), cfg))
	}, 2},
	{"waited for and given up", giveUp, 1},
}

// A reply is lost at each command of a life in turn. Two permits are the limit, so that a
// second grant for one attempt would find room.
func TestLostReplyAtEveryCommand(t *testing.T) {
	lost := map[string]bool{} // on any server: which a life meets is a matter of moments
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.Name, func(t *testing.T) {
			var all []harness.Life
			for _, l := range lives {
				all = append(all, harness.Life{Name: l.name, Run: func(x *harness.Loser) {
					l.run(loser{&permitSite{x.Site}, x})
					if n := x.Granted(); n > l.leases {
						x.Site.TB.Errorf("enters were granted to %d attempts; there were %d leases", n, l.leases)
					}
				}})
			}
			maps.Copy(lost, harness.LoseEach(t, redistest.Shared(t, v), harness.Permits, "ask", all))
		})
	}
	harness.WantLost(t, lost, "time", "enter", "renew", "ask", "leave", "SUBSCRIBE")
}

// liveAlone acquires, is renewed, extends and releases.
func liveAlone(s loser) {
	h := s.closing(s.Client(), semaphore.Config{Limit: 2, TTL: lifeTTL})
	l, err := h.Acquire(context.Background(), s.Key)
	redistest.CheckNow(s.TB, err == nil, "acquire: %v", err)
	s.holds(1)
	renewed(s.TB, l, l.Deadline())
	redistest.Expect(s.TB, l.Extend(context.Background(), 2*lifeTTL), nil, "extend: %v")
	s.holds(1)
	redistest.Expect(s.TB, l.Release(), nil, "release: %v")
	redistest.WantErr(s.TB, l.Release(), leasehold.ErrReleased)
	s.holds(0) // at once: Release said so
	s.empty(2, lifeTTL)
}

// handOver has a waiter of h2 get what h1 releases.
func handOver(s loser, h1, h2 *semaphore.Semaphore) {
	first, err := h1.AcquireN(context.Background(), s.Key, 2)
	redistest.CheckNow(s.TB, err == nil, "acquire: %v", err)
	waiter := s.acquiring(context.Background(), h2)
	s.WaitQueued(1)
	s.AwaitSubscription()
	released := time.Now()
	redistest.Expect(s.TB, first.Release(), nil, "release: %v")
	next := waiter.Got()
	if took := waiter.At.Sub(released); s.K == 0 && took > time.Second { // a sign of life takes longer
		s.TB.Errorf("with nothing lost, the hand-over took %v", took)
	}
	s.holds(1)
	redistest.Expect(s.TB, next.Release(), nil, "release of what was waited for: %v")
	s.holds(0)
	s.empty(2, lifeTTL)
}

// giveUp cancels a waiter.
func giveUp(s loser) {
	h := s.closing(s.Client(), semaphore.Config{Limit: 2, TTL: lifeTTL})
	first, err := h.AcquireN(context.Background(), s.Key, 2)
	redistest.CheckNow(s.TB, err == nil, "acquire: %v", err)
	ctx, cancel := context.WithCancel(context.Background())
	waiter := s.acquiring(ctx, h)
	s.WaitQueued(1)
	s.AwaitSubscription()
	cancel()
	redistest.WantErr(s.TB, waiter.Within(harness.Slack, "an acquisition").Err, context.Canceled)
	s.WaitQueued(0)
	redistest.Expect(s.TB, first.Release(), nil, "release: %v")
	s.holds(0)
	s.empty(2, lifeTTL)
}

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
