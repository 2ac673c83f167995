package call

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Over a short way callers share many short pipelines, even if pipelines have grown, and what
// nobody waits for goes in a long one.
func TestShortWayHasShortPipelinesForCallers(t *testing.T) {
	const crowd = 400
	most := func(t *testing.T, way time.Duration, enqueue func(h *held, one *Call)) (most int) {
		withHeld(t, func(t *testing.T, h *held) {
			h.together = func(_ context.Context, _ []redis.Cmder, send func() error) error {
				time.Sleep(way)
				return send()
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
	n := most(t, quickTrip/2, waiting)
	redistest.Check(t, n < crowd/4, "over a short way %d of %d callers shared a pipeline; want short ones", n, crowd)
	n = most(t, 2*quickTrip, waiting)
	redistest.Check(t, n >= crowd, "over a long way %d of %d callers shared a pipeline; want all", n, crowd)
	n = most(t, quickTrip/2, func(h *held, one *Call) { h.start(one, ignore) })
	redistest.Check(t, n >= crowd, "over a short way %d of %d calls without a caller shared a pipeline; want all", n, crowd)
}

// Over a short way one trip at a time carries renewals. It holds up nobody else, and if it
// hangs, the next one does not wait for it.
func TestShortWayHasOneTripOfRenewals(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		hang := make(chan struct{})
		h.together = func(_ context.Context, _ []redis.Cmder, send func() error) error {
			<-hang
			return send()
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
			alone, pipelines := h.sent()
			redistest.Check(t, alone == wantAlone && len(pipelines) == want,
				"%s: %d calls alone and the pipelines %v; want %d and %d", after, alone, pipelines, wantAlone, want)
		}
		two("a")
		two("b")
		wantSent("two times renewals", 0, 1)
		h.do(t.Context(), echoed("caller", 1), ignore)
		synctest.Wait()
		alone, pipelines := h.sent()
		redistest.Check(t, alone+len(pipelines) == 2, "sent %d alone and %v; want the caller's call at once", alone, pipelines)
		time.Sleep(2 * maxRelief)
		synctest.Wait()
		_, pipelines = h.sent()
		redistest.Check(t, len(pipelines) >= 2 && pipelines[len(pipelines)-1][0] == "b0",
			"sent %v; want the second renewals once the first trip seems to hang", pipelines)
		close(hang)
		h.finish()
		synctest.Wait()
		q := h.queueOf(echoed("k", 1))
		q.mu.Lock()
		defer q.mu.Unlock()
		redistest.Check(t, q.renewing == 0, "%d trips of renewals after the last one", q.renewing)
	})
}

// Renewals do not wait for a trip that hangs, also while callers have trips begin all the time.
func TestShortWayRenewsWhileCallersCome(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		hang := make(chan struct{})
		h.together = func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if cmds[0].Args()[3] == "hangs" {
				<-hang
			}
			return send()
		}
		h.open()
		renewed := make(chan time.Time, 1)
		for _, key := range []string{"hangs", "renewed"} {
			h.done.Add(2)
			one, two := ranked(key, KeepsLease, time.Second), ranked(key, KeepsLease, time.Second)
			one.Done = func([]int64, error) { h.done.Done() }
			two.Done = func([]int64, error) {
				defer h.done.Done()
				if key == "renewed" {
					renewed <- time.Now()
				}
			}
			h.Start(t.Context(), nil, one, two)
			synctest.Wait()
		}
		began := time.Now()
		for range 20 * minRelief / closely {
			h.echoes(t, 1)
			time.Sleep(closely)
		}
		close(hang)
		h.finish()
		redistest.AtMost(t, (<-renewed).Sub(began), minRelief+closely, "renewals waited %v for a trip that hangs")
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
		h.alone = func(_ context.Context, _ []redis.Cmder, send func() error) error {
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(trip)
			mu.Lock()
			under--
			mu.Unlock()
			return send()
		}
		h.together = h.alone
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
		took := time.Since(began)
		redistest.Check(t, took <= trip*3/2, "calls that came just after others took %v; want little more than a trip of %v", took, trip)
		h.echoes(t, 600)
		h.done.Wait()
		limit := min(maxSpread, h.queueOf(echoed("k", 1)).server.link.connections)
		redistest.Check(t, most == limit, "%d round trips were under way; want %d", most, limit)
	})
}
