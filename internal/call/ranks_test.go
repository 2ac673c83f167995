package call

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// start starts a call that Done counts out.
func (h *held) start(one *Call, then func([]int64, error)) {
	h.done.Add(1)
	one.Done = func(reply []int64, err error) {
		defer h.done.Done()
		then(reply, err)
	}
	h.Start(context.Background(), nil, one)
}

func ranked(key string, rank Rank, by time.Duration) *Call {
	one := echoed(key, 1)
	one.Rank, one.By = rank, time.Now().Add(by)
	return one
}

func TestQueueIsSentByRank(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		h.busy(t)
		for i := range 4 {
			h.start(ranked(fmt.Sprint("ask", i), SignOfLife, 0), ignore)
		}
		for i := range 2 {
			h.do(t.Context(), ranked(fmt.Sprint("enter", i), ForCaller, 0), ignore)
			synctest.Wait()
			h.start(ranked(fmt.Sprint("leave", i), GivesBack, 0), ignore)
		}
		for _, s := range []int{3, 1, 2} {
			h.start(ranked(fmt.Sprint("renew", s), KeepsLease, time.Duration(s)*time.Second), ignore)
		}
		synctest.Wait()
		h.finish()
		const want = "renew1 renew2 renew3 leave0 leave1 enter0 ask0 enter1 ask1 ask2 ask3"
		h.wantFirst(t, want)
	})
}

// While the server answers, no call is given up, however long the queue is.
func TestQueueOfAServerThatAnswersIsKept(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		h.open()
		h.echoes(t, 1) // the server knows the script
		h.done.Wait()
		h.together = func(_ context.Context, _ []redis.Cmder, send func() error) error {
			time.Sleep(time.Second)
			return send()
		}
		h.alone = h.together
		began := time.Now()
		for i := range 1500 {
			one := ranked("k", Rank(i%int(ranks)), time.Second)
			done := func(_ []int64, err error) {
				redistest.Check(t, err == nil, "after %v: %v; want that the call is sent", time.Since(began), err)
			}
			if i%2 == 0 {
				h.do(t.Context(), one, done)
			} else {
				h.start(one, done)
			}
		}
		h.done.Wait()
		took := time.Since(began)
		redistest.Check(t, took >= 2*queueBound, "took %v; this test wants a queue of %v at least", took, 2*queueBound)
	})
}

// The time at which a call becomes void, and that of its sending, are those of its round trip.
func TestWaitInTheQueueDoesNotMakeACallVoid(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		h.busy(t)
		const after, wait = 5 * time.Second, minRelief / 2
		void, never := time.Now().Add(after).UnixMicro(), int64(0)
		moved, kept := echoed("moved", 1), echoed("kept", 1)
		moved.Void, moved.VoidAfter = &void, after
		kept.Void, kept.VoidAfter = &never, after
		h.do(t.Context(), moved, ignore)
		h.start(kept, ignore)
		time.Sleep(wait)
		sent := time.Now()
		h.finish()
		want := sent.Add(after).UnixMicro()
		redistest.Check(t, void >= want && void <= want+1000,
			"void %v after it was sent; want %v", time.Duration(void-sent.UnixMicro())*time.Microsecond, after)
		redistest.Check(t, never == 0, "a call that is never void became void at %d", never)
		redistest.Check(t, moved.Sent.Equal(sent) && kept.Sent.Equal(sent), "sent at %v and %v; want %v", moved.Sent, kept.Sent, sent)
	})
}

// A call gets one outcome: withdrawn in the queue or under way, or after its goroutine ended.
func TestEachStartedCallGetsOneOutcome(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		var outcomes [3]atomic.Int32
		count := func(i int) func([]int64, error) { return func([]int64, error) { outcomes[i].Add(1) } }
		underWay := echoed("under way", 1)
		h.start(underWay, count(0))
		h.echoes(t, maxInFlight-1)
		synctest.Wait()
		queued := echoed("queued", 1)
		h.start(queued, count(1))
		redistest.Check(t, !underWay.Withdraw() && queued.Withdraw(), "a call under way was withdrawn, or one in the queue was not")
		redistest.Expect(t, outcomes[1].Load(), 1, "a withdrawn call has %d outcomes; want one at once")
		h.finish()
		h.alone = func(context.Context, []redis.Cmder, func() error) error { runtime.Goexit(); return nil }
		h.together = h.alone
		h.start(echoed("ended", 1), count(2))
		for range 2 * maxInFlight {
			h.start(echoed("ended", 1), ignore)
		}
		h.done.Wait()
		for i := range outcomes {
			redistest.Expect(t, outcomes[i].Load(), 1, "call %d has %d outcomes; want one", i)
		}
	})
}

// No more round trips are under way than the client has connections.
func TestRoundTripsHaveAConnectionEach(t *testing.T) {
	_, newClient := redistest.Bubble(t)
	for size, want := range map[int]int{2: 2, 100: maxInFlight} {
		c := newReady(t, newClient(func(o *redis.Options) { o.PoolSize = size }))
		one := echoed("k", 1)
		redistest.Expect(t, c.queueOf(one).most(maxInFlight), want, "with %d connections %d trips are under way at once", size)
	}
}

// The handles of a client share its queues; a client that nobody uses is forgotten.
func TestHandlesOfAClientShareItsLink(t *testing.T) {
	_, newClient := redistest.Bubble(t)
	rdb, other := newClient(), newClient()
	a, b, c := newReady(t, rdb), newReady(t, rdb), newReady(t, other)
	redistest.Check(t, a.link == b.link && a.link != c.link, "two handles of one client have two links, or two clients share one")
	wrapped := struct{ redis.UniversalClient }{rdb}
	d := newReady(t, wrapped)
	redistest.Check(t, d.link != a.link, "a client that is no pointer shares a link")
	known := func() int {
		links.Lock()
		defer links.Unlock()
		return len(links.byAddress)
	}
	before := known()
	for range 10 {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		redistest.WantErr(t, redistest.ErrorOf(NewClient(rdb)))
		_ = rdb.Close()
	}
	redistest.Eventually(t, "links without a handle to be forgotten", func() bool {
		runtime.GC()
		return known() <= before
	})
	runtime.KeepAlive([]*Client{a, b, c})
}

func TestPipelinesGrowWithTheLine(t *testing.T) {
	const usual = 100 * time.Millisecond
	now := time.Now()
	newPace := func() *pace { return &pace{least: minPipelineBytes, bytes: minPipelineBytes} }
	after := func(p *pace, took time.Duration, full bool) int {
		now = now.Add(took)
		p.answered(now, trip{began: now.Add(-took), full: full})
		return p.bytes
	}
	t.Run("full ones that are quick", func(t *testing.T) {
		p := newPace()
		var got []int
		for range 10 {
			got = append(got, after(p, usual, true)/minPipelineBytes)
		}
		want := []int{2, 4, 8, 16, 32, 64, 128, 256, 262, 262}
		redistest.Check(t, slices.Equal(got, want), "grew to %v times the least; want %v", got, want)
		redistest.Check(t, after(p, 3*usual, true) == maxPipelineBytes && after(p, 5*usual, true) == maxPipelineBytes/2,
			"%d bytes after slow trips; want half after one of more than four times the shortest", p.bytes)
		p.failed()
		redistest.Check(t, p.bytes == minPipelineBytes, "%d bytes after a failure; want a new beginning", p.bytes)
	})
	t.Run("ones that are not full", func(t *testing.T) {
		p := newPace()
		redistest.Check(t, after(p, usual, false) == minPipelineBytes, "grew to %d", p.bytes)
	})
	t.Run("a network without delay", func(t *testing.T) {
		p := newPace()
		after(p, 50*time.Microsecond, false)
		redistest.Expect(t, after(p, 1900*time.Microsecond, true), 2*minPipelineBytes, "grew to %d; want growth up to twice a millisecond")
	})
	t.Run("in a bubble", func(t *testing.T) {
		p := newPace()
		redistest.Check(t, after(p, 0, true) == minPipelineBytes, "grew to %d over a connection that may have no buffer", p.bytes)
	})
	t.Run("a shortest trip is forgotten", func(t *testing.T) {
		p := newPace()
		after(p, usual/10, false)
		for range 2 * int(shortestOver/usual) * 11 / 10 {
			after(p, usual, false)
		}
		redistest.Expect(t, after(p, usual, true), 2*minPipelineBytes, "%d bytes; want growth by the shortest trip of late")
	})
}

// A pair goes in one pipeline, the first call first, whatever the queue.
func TestPairGoesTogether(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		h.busy(t)
		first, second := echoed("first", 1), ranked("second", GivesBack, 0)
		var pair sync.WaitGroup
		pair.Go(func() {
			replies, errs := h.DoBoth(t.Context(), first, second)
			wantEcho(t, 1, replies[0], errs[0])
			wantEcho(t, 1, replies[1], errs[1])
		})
		h.do(t.Context(), echoed("enter", 1), ignore)
		synctest.Wait()
		h.open()
		pair.Wait()
		h.done.Wait()
		h.wantFirst(t, "first second enter") // the pair has the rank of its second call
	})
}

// A call that its caller has withdrawn tells nothing of its server: pipelines stay as long as they are.
func TestWithdrawnCallIsNoFailure(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		q, one := h.only.queue, echoed("k", 1)
		q.pace.bytes = maxPipelineBytes
		redistest.CheckNow(t, one.Withdraw(), "it was sent")
		h.start(one, func(_ []int64, err error) {
			redistest.Check(t, errors.Is(err, errWithdrawn), "%v; want that it was withdrawn", err)
		})
		h.done.Wait()
		synctest.Wait()
		redistest.Check(t, q.pace.bytes == maxPipelineBytes && q.lastErr == nil, "pipelines of %d bytes, and %v", q.pace.bytes, q.lastErr)
		redistest.Check(t, !network(NotSent(errWithdrawn)), "it counts as an error of the network, for which a Cluster is asked for its topology")
	})
}
