package semaphore

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }

// lifeTTL leaves time for a renewal to be sent again, several times, on a busy machine.
const lifeTTL = 3 * time.Second

// loser is a site at which one reply is lost.
type loser struct {
	*site
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
					l.run(loser{&site{x.Site}, x})
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

func (s *site) holds(permits int) {
	s.TB.Helper()
	redistest.Expect(s.TB, s.InUse(), permits, "%d permits are in use")
}
