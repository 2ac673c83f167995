package semaphore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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

// The server is stopped while many hold leases: each Release returns within what its
// documentation says, 5 s and the client's ReadTimeout, however many there are. To run so
// many goroutines may take the machine itself seconds: so the releases are compared with
// goroutines that only wait, in many short steps.
func TestReleasesOfAStoppedServer(t *testing.T) {
	srv := redistest.StartServer(t, redistest.NeedServers(t)[0])
	const readTimeout = time.Second
	const bound = 5*time.Second + readTimeout
	const holdersPerControl, steps, step = 200, 100, 45 * time.Millisecond // a release takes some 4.5 s
	for _, holders := range []int{200, 2_000, 20_000} {
		t.Run(fmt.Sprint(holders), func(t *testing.T) {
			s := newSite(t, srv.Client())
			rdb := srv.Client(func(o *redis.Options) { o.ReadTimeout = readTimeout })
			t.Cleanup(func() { _ = rdb.Close() })
			h := s.handle(rdb, semaphore.Config{Limit: 1, TTL: 10 * time.Minute})
			held := acquireAll(t, h, holders)
			srv.Pause()
			resume := sync.OnceFunc(srv.Resume)
			defer resume()
			var all sync.WaitGroup
			timed := func(took *time.Duration, do func()) {
				all.Go(func() {
					began := time.Now()
					do()
					*took = time.Since(began)
				})
			}
			releases, controls := make([]time.Duration, holders), make([]time.Duration, holders/holdersPerControl)
			for i, l := range held {
				if i%holdersPerControl == 0 {
					timed(&controls[i/holdersPerControl], func() {
						for range steps {
							time.Sleep(step)
						}
					})
				}
				timed(&releases[i], func() {
					if err := l.Release(); !errors.Is(err, leasehold.ErrUnavailable) {
						t.Errorf("release: %v; want ErrUnavailable", err)
					}
				})
			}
			all.Wait()
			took, late := slices.Max(releases), slices.Max(controls)-steps*step
			t.Logf("%d releases took at most %v; the bound is %v; goroutines that only wait were at most %v late", holders, took, bound, late)
			if took > bound+2*late+harness.Slack {
				t.Errorf("one of %d releases took %v; want %v at most, where goroutines that only wait are %v late", holders, took, bound, late)
			}
			resume()
			// What was not confirmed is given back in the background.
			harness.CloseWithin(t, 2*time.Minute, h)
			keys, err := s.RDB.Keys(t.Context(), "leasehold:sem:{"+s.Family+":*}:holders").Result()
			if err != nil || len(keys) != 0 {
				t.Errorf("%d of %d permits are still taken, %v", len(keys), holders, err)
			}
		})
	}
}

// The server is stopped, and a crowd asks for permits with 100 ms of patience: all
// return in time, and nothing of them is left a TTL and a second later. To start the
// goroutines of such a crowd, and to wake them, may take the machine itself seconds: so
// the callers are compared with goroutines that only wait for the end of such a ctx.
func TestCrowdThatLeavesAStoppedServer(t *testing.T) {
	srv := redistest.StartServer(t, redistest.NeedServers(t)[0])
	const patience, ttl, readTimeout = 100 * time.Millisecond, 5 * time.Second, time.Second
	const callersPerControl = 20
	for _, callers := range []int{5_000, 50_000} { // ten times as many change nothing
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			s := newSite(t, srv.Client())
			rdb := srv.Client(func(o *redis.Options) { o.ReadTimeout = readTimeout })
			t.Cleanup(func() { _ = rdb.Close() })
			h := s.closing(rdb, semaphore.Config{Limit: 1, TTL: ttl})
			for range 3 {
				l, err := h.Acquire(t.Context(), "warm")
				if err != nil || l.Release() != nil {
					t.Fatal(err)
				}
			}
			srv.Pause()
			defer srv.Resume()
			heap := func() uint64 {
				runtime.GC()
				runtime.GC() // pools keep what they have over one collection
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			// The runtime keeps some 440 B of each goroutine that there ever was: as many as
			// the crowd has, with those of its calls, are there once before.
			var once sync.WaitGroup
			gate := make(chan struct{})
			for range 2*callers + callers/callersPerControl {
				once.Go(func() { <-gate })
			}
			close(gate)
			once.Wait()
			goroutinesBefore, heapBefore := runtime.NumGoroutine(), heap()
			var left sync.WaitGroup
			var other atomic.Int64
			start := make(chan struct{})
			// after waits for the end of a ctx by wait, and says how late that returned.
			after := func(lateness *time.Duration, wait func(ctx context.Context)) {
				left.Go(func() {
					<-start
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					wait(ctx)
					end, _ := ctx.Deadline()
					*lateness = time.Since(end)
				})
			}
			late, controls := make([]time.Duration, callers), make([]time.Duration, callers/callersPerControl)
			for i := range callers {
				if i%callersPerControl == 0 {
					after(&controls[i/callersPerControl], func(ctx context.Context) { <-ctx.Done() })
				}
				after(&late[i], func(ctx context.Context) {
					if _, err := h.Acquire(ctx, fmt.Sprint(i)); !errors.Is(err, context.DeadlineExceeded) {
						other.Add(1)
					}
				})
			}
			close(start)
			left.Wait()
			gone := time.Now()
			latest, control := slices.Max(late), slices.Max(controls)
			t.Logf("%d callers returned at most %v after the end of their ctx, goroutines without a call %v", callers, latest, control)
			if latest > 4*control+harness.Slack || other.Load() > 0 {
				t.Errorf("a caller returned %v after the end of its ctx, a goroutine without a call %v; %d callers without their ctx's error", latest, control, other.Load())
			}
			const fewGoroutines, muchMemory = 20, 20 << 20
			harness.Until(t, ttl+time.Second+4*control+harness.Slack, func() error {
				if n := runtime.NumGoroutine() - goroutinesBefore; n > fewGoroutines {
					return fmt.Errorf("%d goroutines more than before", n)
				}
				time.Sleep(50 * time.Millisecond)
				if now := heap(); now > heapBefore+muchMemory {
					return fmt.Errorf("%d MiB more than before", (now-heapBefore)>>20)
				}
				return nil
			})
			t.Logf("%d callers: goroutines and memory are back after %v", callers, time.Since(gone))
		})
	}
}

// Five thousand callers are the first of their handle, on a network of 20 ms: one
// question for the server's time is enough for all, and none fails.
func TestFirstCrowdAsksForTheTimeOnce(t *testing.T) {
	srv := redistest.StartServer(t, redistest.NeedServers(t)[0])
	s := newSite(t, srv.Client())
	p := redistest.NewProxy(t, srv.Addr())
	p.Delay(10*time.Millisecond, 10*time.Millisecond)
	var questions atomic.Int64
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnRequest && harness.Script(ev.Cmd) == "time" {
			questions.Add(1)
		}
		return redistest.Pass
	})
	const callers = 5_000
	h := s.closing(p.Client(), semaphore.Config{Limit: 1, TTL: time.Minute})
	began := time.Now()
	acquireAllAtOnce(t, h, callers)
	t.Logf("%d first callers took %v", callers, time.Since(began))
	// The first reply tells the version; it is asked for the time as well.
	if n := questions.Load(); n > 2 {
		t.Errorf("%d questions for the time; want 1, and 1 that checks the version", n)
	}
}

// acquireAllAtOnce takes a permit of each of n keys, all at the same time, and gives
// it back.
func acquireAllAtOnce(t *testing.T, h *semaphore.Semaphore, n int) {
	t.Helper()
	var all sync.WaitGroup
	var failed atomic.Int64
	for i := range n {
		all.Go(func() {
			l, err := h.Acquire(t.Context(), fmt.Sprint(i))
			if err == nil {
				err = l.Release()
			}
			if err != nil && failed.Add(1) == 1 {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d callers failed", n)
	}
}
