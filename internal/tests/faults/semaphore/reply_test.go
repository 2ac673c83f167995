package semaphore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// loser has a proxy lose the k-th reply of all, whatever it answers.
type loser struct {
	*site
	p   *redistest.Proxy
	k   int // 0 = none
	act redistest.Action

	mu         sync.Mutex
	seen       int
	lost       string              // what the lost reply answered
	granted    map[string]struct{} // members that an enter's reply granted
	subscribed chan struct{}       // closed when a subscription was answered
	asked      chan struct{}       // closed when a sign of life was
}

func (x *loser) hook(ev redistest.Event) redistest.Action {
	if ev.Stage != redistest.OnReply {
		return redistest.Pass
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if v := harness.Integers(ev.Reply); harness.Script(ev.Cmd) == "enter" && len(v) > 0 && v[0] == 1 {
		x.granted[ev.Cmd[7]] = struct{}{}
	}
	switch harness.Script(ev.Cmd) {
	case "SUBSCRIBE":
		closeOnce(x.subscribed)
	case "ask":
		if !ev.Failed() {
			closeOnce(x.asked)
		}
	}
	if x.seen++; x.seen != x.k {
		return redistest.Pass
	}
	x.lost = harness.Script(ev.Cmd)
	return x.act
}

func (x *loser) client() *redis.Client {
	return x.p.Client(func(o *redis.Options) {
		if x.act == redistest.Vanish {
			o.ReadTimeout = 400 * time.Millisecond // else 3 s
		}
	})
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// awaitSubscription makes the subscription's commands part of the life, and,
// where nothing is lost, the sign of life that comes with it.
func (x *loser) awaitSubscription() {
	last := x.subscribed
	if x.k == 0 {
		last = x.asked
	}
	select {
	case <-last:
	case <-time.After(10 * time.Second):
		x.TB.Error("a handle that waits doesn't subscribe")
	}
}

// life is leases from the first command to the last, and what must hold
// wherever in it a reply is lost.
type life struct {
	name   string
	run    func(x *loser)
	leases int
}

// lifeTTL leaves time for a renewal to be sent again, several times, on a busy machine.
const lifeTTL = 3 * time.Second

var lives = []life{
	{"alone", liveAlone, 1},
	{"handed over in the process", func(x *loser) {
		h := x.closing(x.client(), semaphore.Config{Limit: 2, TTL: lifeTTL})
		handOver(x, h, h)
	}, 2},
	{"handed over to another process", func(x *loser) {
		cfg := semaphore.Config{Limit: 2, TTL: lifeTTL}
		handOver(x, x.closing(x.client(), cfg), x.closing(x.client(), cfg))
	}, 2},
	{"waited for and given up", giveUp, 1},
}

// A reply is lost at each command of a life in turn, once with the connection
// and once with the connection left open and silent. Two permits are the limit,
// so that a second grant for one attempt would find room.
func TestLostReplyAtEveryCommand(t *testing.T) {
	var lost sync.Map // which replies were, on any server: which a life meets is a matter of moments
	t.Cleanup(func() {
		if t.Skipped() {
			return // no server to lose a reply of
		}
		for _, name := range []string{"time", "enter", "renew", "ask", "leave", "SUBSCRIBE"} {
			if _, ok := lost.Load(name); !ok {
				t.Errorf("no reply to %s was lost", name)
			}
		}
	})
	harness.EachServer(t, func(t *testing.T, srv *redistest.Server) {
		var all sync.WaitGroup
		places := make(chan struct{}, 16) // what two processors carry without being late
		for _, l := range lives {
			for how, act := range map[string]redistest.Action{"closed": redistest.Close, "silent": redistest.Vanish} {
				all.Go(func() {
					t.Run(l.name+", "+how, func(t *testing.T) { loseEach(t, srv, l, act, places, &lost) })
				})
			}
		}
		all.Wait()
	})
}

func loseEach(t *testing.T, srv *redistest.Server, l life, act redistest.Action, places chan struct{}, lost *sync.Map) {
	var all sync.WaitGroup
	live := func(t *testing.T, k int) (replies int, lostTo string) {
		places <- struct{}{}
		defer func() { <-places }()
		p := redistest.NewProxy(t, srv.Addr())
		x := &loser{
			site: newSite(t, srv.Client()), p: p, k: k, act: act,
			granted: map[string]struct{}{}, subscribed: make(chan struct{}), asked: make(chan struct{}),
		}
		p.SetHook(x.hook)
		l.run(x)
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(x.granted) > l.leases {
			t.Errorf("enters were granted to %d attempts; there were %d leases", len(x.granted), l.leases)
		}
		return x.seen, x.lost
	}
	replies, _ := live(t, 0)
	for k := 1; k <= replies+3; k++ { // some have more connections to open
		all.Go(func() {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				_, to := live(t, k)
				t.Logf("lost the reply to %q", to)
				lost.Store(to, true)
			})
		})
	}
	all.Wait()
}

// liveAlone acquires, is renewed, extends and releases.
func liveAlone(s *loser) {
	h := s.closing(s.client(), semaphore.Config{Limit: 2, TTL: lifeTTL})
	l, err := h.Acquire(context.Background(), s.Key)
	if err != nil {
		s.TB.Fatalf("acquire: %v", err)
	}
	s.holds(1)
	first := l.Deadline()
	harness.Until(s.TB, lifeTTL, func() error {
		if err := context.Cause(l.Context()); err != nil {
			s.TB.Fatalf("lost: %v", err)
		}
		if !l.Deadline().After(first) {
			return fmt.Errorf("no renewal")
		}
		return nil
	})
	if err := l.Extend(context.Background(), 2*lifeTTL); err != nil {
		s.TB.Errorf("extend: %v", err)
	}
	s.holds(1)
	if err := l.Release(); err != nil {
		s.TB.Errorf("release: %v", err)
	}
	harness.IsErr(s.TB, "release again", l.Release(), leasehold.ErrReleased)
	s.holds(0) // at once: Release said so
	s.empty(2, lifeTTL)
}

// handOver has a waiter of h2 get what h1 releases.
func handOver(s *loser, h1, h2 *semaphore.Semaphore) {
	first, err := h1.AcquireN(context.Background(), s.Key, 2)
	if err != nil {
		s.TB.Fatalf("acquire: %v", err)
	}
	waiter := harness.Go(func() (*semaphore.Lease, error) { return h2.Acquire(context.Background(), s.Key) })
	harness.WaitCount(s.TB, "waiters", 1, s.Queued)
	s.awaitSubscription()
	released := time.Now()
	if err := first.Release(); err != nil {
		s.TB.Errorf("release: %v", err)
	}
	next := harness.Got(s.TB, 10*time.Second, "an acquisition", waiter)
	if next.Err != nil {
		s.TB.Fatalf("wait: %v", next.Err)
	}
	if took := next.At.Sub(released); s.k == 0 && took > time.Second { // a sign of life takes longer
		s.TB.Errorf("with nothing lost, the hand-over took %v", took)
	}
	s.holds(1)
	if err := next.Value.Release(); err != nil {
		s.TB.Errorf("release of what was waited for: %v", err)
	}
	s.holds(0)
	s.empty(2, lifeTTL)
}

// giveUp cancels a waiter.
func giveUp(s *loser) {
	h := s.closing(s.client(), semaphore.Config{Limit: 2, TTL: lifeTTL})
	first, err := h.AcquireN(context.Background(), s.Key, 2)
	if err != nil {
		s.TB.Fatalf("acquire: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	waiter := harness.Go(func() (*semaphore.Lease, error) { return h.Acquire(ctx, s.Key) })
	harness.WaitCount(s.TB, "waiters", 1, s.Queued)
	s.awaitSubscription()
	cancel()
	harness.IsErr(s.TB, "wait", harness.Got(s.TB, harness.Slack, "an acquisition", waiter).Err, context.Canceled)
	harness.WaitCount(s.TB, "waiters", 0, s.Queued)
	if err := first.Release(); err != nil {
		s.TB.Errorf("release: %v", err)
	}
	s.holds(0)
	s.empty(2, lifeTTL)
}

func (s *site) holds(permits int) {
	s.TB.Helper()
	if n := s.InUse(); n != permits {
		s.TB.Errorf("%d permits are in use; want %d", n, permits)
	}
}
