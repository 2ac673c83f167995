package semaphore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// roundTrips counts a client's pipelines and what is in them.
type roundTrips struct {
	pipelines, commands atomic.Int64
	slow                atomic.Int64 // pipelines that took longer than quick
}

// quick is how soon pipelines are answered where the machine keeps up. The renewals
// of one that takes longer may be sent again meanwhile, in several short ones.
const quick = 200 * time.Millisecond

func (*roundTrips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (*roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return next(ctx, cmd) }
}

func (r *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.pipelines.Add(1)
		r.commands.Add(int64(len(cmds)))
		defer func(sent time.Time) {
			if time.Since(sent) > quick {
				r.slow.Add(1)
			}
		}(time.Now())
		return next(ctx, cmds)
	}
}

// goroutines counts those that are there, but for the ones in which go-redis
// dials: how many connections a pool opens is its client's business. It returns
// what they do, too.
func goroutines() (n int, stacks []byte) {
	stacks = make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n = bytes.Count(stacks, []byte("\n\ngoroutine ")) + 1
	// One that dials, and while it connects one that looks after its ctx.
	for _, from := range []string{"github.com/redis/go-redis/v9/internal/pool.(*ConnPool).queuedNewConn", "net.(*netFD).connect"} {
		n -= bytes.Count(stacks, []byte("created by "+from))
	}
	return n, stacks
}

// acquireAll takes the leases of n keys, 16 at a time.
func acquireAll(t *testing.T, h *semaphore.Semaphore, n int) []*semaphore.Lease {
	t.Helper()
	all := make([]*semaphore.Lease, n)
	var acquires sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		acquires.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				l, err := h.TryAcquire(t.Context(), fmt.Sprint(i))
				if err != nil {
					t.Errorf("acquire %d: %v", i, err)
					return
				}
				_ = l.Context() // what a holder has
				all[i] = l
			}
		})
	}
	acquires.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// One handle holds 10,000 leases. The newest server alone: what is measured is
// the client, and the server's keys are counted whole.
func TestTenThousandLeasesOfOneHandle(t *testing.T) {
	redistest.NoLeaks(t)
	const leases = 10_000
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newSite(t, srv.Client())
	trips := new(roundTrips)
	rdb := srv.Client()
	rdb.AddHook(trips)
	// A machine that is busy needs longer for each round of renewals: leases last
	// several times as long as it takes to acquire all of them.
	h := s.handle(rdb, semaphore.Config{Limit: 1, TTL: time.Hour})
	began := time.Now()
	acquireAll(t, h, leases/20)
	ttl := min(max(10*time.Second, 5*20*time.Since(began)), 3*time.Minute)
	t.Logf("the TTL is %v", ttl)
	harness.CloseWithin(t, closeBound, h)
	h = s.handle(rdb, semaphore.Config{Limit: 1, TTL: ttl})

	before := runtime.NumGoroutine()
	all := acquireAll(t, h, leases)
	trips.pipelines.Store(0)
	trips.commands.Store(0)
	trips.slow.Store(0)
	// Until each lease has been renewed twice, however long this machine takes.
	quiet, peak, most := 1<<30, 0, []byte(nil)
	for end := time.Now().Add(5 * ttl); trips.commands.Load() < 2*leases; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d renewals of %d leases in five times the TTL", trips.commands.Load(), leases)
		}
		n := runtime.NumGoroutine() - before
		if n > 5 {
			var stacks []byte
			n, stacks = goroutines()
			if n -= before; n > peak {
				most = stacks
			}
		}
		quiet, peak = min(quiet, n), max(peak, n)
	}
	pipelines, commands, slow := trips.pipelines.Load(), trips.commands.Load(), trips.slow.Load()
	t.Logf("goroutines: %d quiet, %d at most; %d renewals in %d round trips, %d each; %d round trips were slow",
		quiet, peak, commands, pipelines, commands/max(1, pipelines), slow)
	// One that schedules, and one for each of eight round trips, which may be about to end when
	// the next one begins. If round trips were slow, up to 32 are under way.
	bound := 1 + 2*8
	if slow > 0 {
		bound = 1 + 2*32
	}
	if quiet > bound || peak > bound {
		t.Errorf("%d to %d goroutines were added, want at most %d; at most there were:\n%s", quiet, peak, bound, most)
	}
	if slow == 0 && commands < 8*pipelines {
		t.Errorf("%d renewals took %d round trips", commands, pipelines)
	}
	lost := 0
	for _, l := range all {
		if l.Context().Err() != nil {
			lost++
		}
	}
	held, err := s.RDB.DBSize(t.Context()).Result()
	if err != nil || lost > 0 || held != leases {
		t.Errorf("%d leases are lost, %d of %d are on the server: %v", lost, held, leases, err)
	}

	closed := time.Now()
	harness.CloseWithin(t, 5*time.Minute, h) // it takes as long as the machine needs
	took := time.Since(closed)
	t.Logf("closed in %v", took)
	if held, err := s.RDB.DBSize(t.Context()).Result(); err != nil || held != 0 {
		t.Errorf("%d keys are left after Close: %v", held, err)
	}
	// Close gives back all leases in their turn, and on a busy machine some end before.
	if cause := context.Cause(all[0].Context()); !errors.Is(cause, leasehold.ErrClosed) && (took < ttl/2 || !errors.Is(cause, leasehold.ErrLost)) {
		t.Errorf("Close took %v and ended a lease with %v; want ErrClosed", took, cause)
	}
	redistest.Eventually(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
}
