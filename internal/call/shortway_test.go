package call

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// Over a short way callers share many short pipelines, even if pipelines have grown, and what
// nobody waits for goes in a long one.
func TestShortWayHasShortPipelinesForCallers(t *testing.T) {
	const crowd = 400
	most := func(t *testing.T, way time.Duration, enqueue func(h *held, one *Call)) (most int) {
		withHeld(t, func(t *testing.T, h *held) {
			h.hook.pipeline = func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				time.Sleep(way)
				return next(ctx, cmds)
			}
			h.busy(t)
			for i := range crowd {
				enqueue(h, ranked(fmt.Sprint(i), ForCaller, 0))
			}
			synctest.Wait()
			q := h.queueOf(ranked("k", ForCaller, 0))
			q.mu.Lock()
			q.pace.bytes, q.pace.shortest = maxPipelineBytes, [2]time.Duration{way, way}
			q.pace.turnsAt = time.Now().Add(time.Hour)
			q.mu.Unlock()
			time.Sleep(way)
			h.finish()
			_, pipelines := h.sent()
			for _, p := range pipelines {
				most = max(most, len(p))
			}
		})
		return most
	}
	waiting := func(h *held, one *Call) { h.do(context.Background(), one, ignore) }
	if n := most(t, quickTrip/2, waiting); n >= crowd/4 {
		t.Errorf("over a short way %d of %d callers shared a pipeline; want short ones", n, crowd)
	}
	if n := most(t, 2*quickTrip, waiting); n < crowd {
		t.Errorf("over a long way %d of %d callers shared a pipeline; want all", n, crowd)
	}
	if n := most(t, quickTrip/2, func(h *held, one *Call) { h.start(one, ignore) }); n < crowd {
		t.Errorf("over a short way %d of %d calls without a caller shared a pipeline; want all", n, crowd)
	}
}

// Over a short way one trip at a time carries renewals. It holds up nobody else, and if it
// hangs, the next one does not wait for it.
func TestShortWayHasOneTripOfRenewals(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		hang := make(chan struct{})
		h.hook.pipeline = func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			<-hang
			return next(ctx, cmds)
		}
		two := func(of string) {
			h.done.Add(2)
			var calls []*Call
			for i := range 2 {
				one := ranked(fmt.Sprint(of, i), KeepsLease, time.Second)
				one.Done = func([]int64, error) { h.done.Done() }
				calls = append(calls, one)
			}
			h.Start(context.Background(), nil, calls...)
			synctest.Wait()
		}
		wantSent := func(after string, wantAlone, want int) {
			t.Helper()
			synctest.Wait()
			if alone, pipelines := h.sent(); alone != wantAlone || len(pipelines) != want {
				t.Errorf("%s: %d calls alone and the pipelines %v; want %d and %d", after, alone, pipelines, wantAlone, want)
			}
		}
		two("a")
		two("b")
		wantSent("two times renewals", 0, 1)
		h.do(t.Context(), echoed("caller", 1), ignore)
		synctest.Wait()
		_, pipelines := h.sent()
		if alone, _ := h.sent(); alone+len(pipelines) != 2 {
			t.Errorf("sent %d alone and %v; want the caller's call at once", alone, pipelines)
		}
		time.Sleep(2 * maxRelief)
		synctest.Wait()
		if _, pipelines := h.sent(); len(pipelines) < 2 || pipelines[len(pipelines)-1][0] != "b0" {
			t.Errorf("sent %v; want the second renewals once the first trip seems to hang", pipelines)
		}
		close(hang)
		h.finish()
		synctest.Wait()
		q := h.queueOf(echoed("k", 1))
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.renewing != 0 {
			t.Errorf("%d trips of renewals after the last one", q.renewing)
		}
	})
}

// Over a long way calls that come while all usual round trips are under way do not wait for one
// of them to end, and no more than maxSpread are made.
func TestLongWayIsSharedByMoreRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 160 * time.Millisecond
		h := newHeld(t)
		h.open()
		var mu sync.Mutex
		var under, most int
		travel := func() {
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(trip)
			mu.Lock()
			under--
			mu.Unlock()
		}
		h.hook.process = func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			travel()
			return next(ctx, cmd)
		}
		h.hook.pipeline = func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			travel()
			return next(ctx, cmds)
		}
		for range 2 { // trips that took no time are forgotten
			time.Sleep(shortestOver + time.Second)
			h.echoes(t, 1)
			h.done.Wait()
		}
		most = 0
		began := time.Now()
		h.busy(t)
		h.echoes(t, 20)
		h.done.Wait()
		if took := time.Since(began); took > trip*3/2 {
			t.Errorf("calls that came just after others took %v; want little more than a trip of %v", took, trip)
		}
		h.echoes(t, 600)
		h.done.Wait()
		if limit := min(maxSpread, h.queueOf(echoed("k", 1)).server.link.connections); most != limit {
			t.Errorf("%d round trips were under way; want %d", most, limit)
		}
	})
}
