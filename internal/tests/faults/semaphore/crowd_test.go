package semaphore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

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
	redistest.AtMost(t, questions.Load(), 2, "%d questions for the time")
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
			redistest.Check(t, err == nil || failed.Add(1) != 1, "caller %d: %v", i, err)
		})
	}
	all.Wait()
	redistest.Expect(t, failed.Load(), 0, "%d callers failed")
}
