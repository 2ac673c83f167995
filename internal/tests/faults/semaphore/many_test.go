package semaphore_test

import (
	"bytes"
	"context"
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
	"github.com/leasehold-go/leasehold/semaphore"
)

// roundTrips counts a client's pipelines and what is in them.
type roundTrips struct{ pipelines, commands atomic.Int64 }

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

// One handle holds 10,000 leases. The newest server alone: what is measured is
// the client, and the server's keys are counted whole.
func TestTenThousandLeasesOfOneHandle(t *testing.T) {
	redistest.NoLeaks(t)
	const leases, ttl = 10_000, 4 * time.Second
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newSite(t, srv.Client())
	trips := new(roundTrips)
	rdb := srv.Client()
	rdb.AddHook(trips)
	h := s.handle(rdb, semaphore.Config{Limit: 1, TTL: ttl})
	if l, err := h.TryAcquire(t.Context(), "warm"); err != nil || l.Release() != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h = s.handle(rdb, semaphore.Config{Limit: 1, TTL: ttl})

	before := runtime.NumGoroutine()
	all := make([]*semaphore.Lease, leases)
	var acquires sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		acquires.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= leases {
					return
				}
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
		return
	}
	trips.pipelines.Store(0)
	trips.commands.Store(0)
	// Twice the TTL from now on, with renewals all the time.
	quiet, peak, most := 1<<30, 0, []byte(nil)
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(time.Millisecond) {
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
	pipelines, commands := trips.pipelines.Load(), trips.commands.Load()
	t.Logf("goroutines: %d quiet, %d at most; %d renewals in %d round trips, %d each",
		quiet, peak, commands, pipelines, commands/max(1, pipelines))
	if quiet > 5 || peak > 5 {
		t.Errorf("%d to %d goroutines were added; at most there were:\n%s", quiet, peak, most)
	}
	if commands < 4*leases {
		t.Errorf("%d renewals of %d leases in twice the TTL", commands, leases)
	}
	if commands < 500*pipelines {
		t.Errorf("%d renewals took %d round trips", commands, pipelines)
	}
	lost := 0
	for _, l := range all {
		if l.Context().Err() != nil {
			lost++
		}
	}
	held, err := s.rdb.DBSize(t.Context()).Result()
	if err != nil || lost > 0 || held != leases {
		t.Errorf("%d leases are lost, %d of %d are on the server: %v", lost, held, leases, err)
	}

	closed := time.Now()
	closeHandle(t, h)
	t.Logf("closed in %v", time.Since(closed))
	if held, err := s.rdb.DBSize(t.Context()).Result(); err != nil || held != 0 {
		t.Errorf("%d keys are left after Close: %v", held, err)
	}
	isErr(t, "cause", context.Cause(all[0].Context()), leasehold.ErrClosed)
	if n := runtime.NumGoroutine() - before; n > 0 {
		t.Errorf("%d goroutines are left after Close", n)
	}
}
