package httpcap_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

const (
	// soon bounds an answer that waits for a probe of Redis at most.
	soon = 600 * time.Millisecond
	// known bounds how long a semaphore takes to notice that Redis is silent, here.
	known = 9 * time.Second
)

// onWire runs a test in a bubble, with an embedded server behind a wire.
func onWire(t *testing.T, test func(t *testing.T, w *harness.Wire, caps *semaphore.Semaphore)) {
	onWireWith(t, semaphore.Config{Limit: 1}, test)
}

func onWireWith(t *testing.T, cfg semaphore.Config, test func(t *testing.T, w *harness.Wire, caps *semaphore.Semaphore)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		w := &harness.Wire{Patience: 500 * time.Millisecond}
		rdb := client(func(o *redis.Options) { o.Dialer = w.Dialer(o.Dialer) })
		rdb.AddHook(w)
		test(t, w, captest.New(t, rdb, cfg))
	})
}

// ask has a request answered without a network.
func ask(t *testing.T, h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	return w
}

func wantAnswer(t *testing.T, h http.Handler, want int, within time.Duration) {
	t.Helper()
	began := time.Now()
	redistest.Require(t, ask(t, h).Code, want, "status %d")
	redistest.AtMost(t, time.Since(began), within, "the answer took %v")
}

// A finished answer does not wait for a Release that Redis does not confirm.
func TestAnswerLeavesWhileRedisHangs(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Mini(t).Addr())
	rdb := p.Client(func(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond })
	caps := captest.New(t, rdb, semaphore.Config{Limit: 1})
	began := make(chan time.Time, 1)
	url := serve(t, capped(t, caps, httpcap.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		p.Cut(true, true)
		<-time.After(20 * time.Millisecond) // longer than a moment, in which Redis is believed to be there
		began <- time.Now()
		_, _ = io.WriteString(w, "done")
	}))
	wantStatus(t, url, http.StatusOK)
	redistest.AtMost(t, time.Since(<-began), soon, "the answer came %v after the handler was done")
	p.Heal()
	captest.WantState(t, caps, 0, 0) // it is given back in the background
}

// Nor does the answer of a moment, if its permit came from memory: no answer of Redis precedes it.
func TestAnswerFromMemoryLeavesWhileRedisHangs(t *testing.T) {
	onWireWith(t, semaphore.Config{Limit: 1, LocalFor: time.Second}, func(t *testing.T, w *harness.Wire, caps *semaphore.Semaphore) {
		b := newBlocker(t)
		h := capped(t, caps, httpcap.Config{Wait: time.Second}, b.ServeHTTP)
		codes := make(chan int)
		for range 2 { // the second one waits for the turn of the first
			go func() { codes <- ask(t, h).Code }()
			synctest.Wait()
		}
		w.Stall()
		began := time.Now()
		b.Release()
		for range 2 {
			redistest.Expect(t, <-codes, http.StatusOK, "status %d")
		}
		redistest.AtMost(t, time.Since(began), soon, "the answers took %v")
		w.Heal()
		captest.WantState(t, caps, 0, 0)
	})
}

// Redis hangs: the first request takes as long as the semaphore needs to notice, and later ones next to nothing. They
// are refused with 503, or let through, all at once. Only a server that is reachable refuses with 429.
func TestHungRedis(t *testing.T) {
	for want, failOpen := range map[int]bool{http.StatusServiceUnavailable: false, http.StatusOK: true} {
		t.Run(http.StatusText(want), func(t *testing.T) {
			onWire(t, func(t *testing.T, w *harness.Wire, caps *semaphore.Semaphore) {
				b := newBlocker(t)
				h := capped(t, caps, httpcap.Config{FailOpen: failOpen}, b.ServeHTTP)
				w.Stall()
				var answers []<-chan int
				for i, within := range []time.Duration{known, soon, soon, soon, soon} {
					began, code := time.Now(), make(chan int, 1)
					answers = append(answers, code)
					go func() { code <- ask(t, h).Code }()
					if failOpen {
						<-b.Started
					} else {
						code <- <-code
					}
					redistest.AtMost(t, time.Since(began), within, "request %d was answered after %v", i)
				}
				b.Release()
				for _, code := range answers {
					redistest.Expect(t, <-code, want, "status %d")
				}
				w.Heal()
				// A probe at most 250 ms old may be under way; the next request sends another one.
				held := new(semaphore.Lease)
				redistest.Eventually(t, "a permit", func() (ok bool) {
					l, err := caps.TryAcquire(t.Context(), tenant)
					if err == nil {
						held = l
					}
					return err == nil
				})
				redistest.Eventually(t, "a request is refused", func() bool { return ask(t, h).Code == http.StatusTooManyRequests })
				redistest.NoError(t, held.Release())
				wantAnswer(t, h, http.StatusOK, 0)
			})
		})
	}
}

// The error of a request in an outage names the key, also of a later one for which nothing was sent.
func TestErrorsOfAnOutageNameTheKey(t *testing.T) {
	t.Parallel()
	nowhere := redistest.MiniClient(t, func(o *redis.Options) { o.Addr = "127.0.0.1:1" })
	var seen error
	h := capped(t, captest.New(t, nowhere, semaphore.Config{Limit: 1}), httpcap.Config{Unavailable: func(_ http.ResponseWriter, _ *http.Request, err error) {
		seen = err
	}}, nil)
	for range 2 {
		ask(t, h)
		redistest.WantErr(t, seen, leasehold.ErrUnavailable, redistest.Says("semaphore: ", "/"+tenant+": ", "connection refused"))
	}
}

// A short Wait bounds what an unknown outage costs, too, also where no connection comes about.
func TestWaitBoundsTheOutage(t *testing.T) {
	for name, connected := range map[string]bool{"with a connection": true, "without one": false} {
		for _, failOpen := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, FailOpen %v", name, failOpen), func(t *testing.T) {
				onWire(t, func(t *testing.T, w *harness.Wire, caps *semaphore.Semaphore) {
					h := capped(t, caps, httpcap.Config{Wait: time.Second, FailOpen: failOpen}, func(http.ResponseWriter, *http.Request) {})
					if connected {
						wantAnswer(t, h, http.StatusOK, 0)
						w.Stall()
					} else {
						w.HoldDials()
					}
					want := http.StatusServiceUnavailable
					if failOpen {
						want = http.StatusOK
					}
					wantAnswer(t, h, want, time.Second+soon)
					wantAnswer(t, h, want, soon)
					w.Heal()
				})
			})
		}
	}
}

// If Redis answers others while a request has no answer, the request waits in a crowd of its process. It is refused,
// and FailOpen does not lift the cap.
func TestCrowdIsNoOutage(t *testing.T) {
	onWire(t, func(t *testing.T, w *harness.Wire, caps *semaphore.Semaphore) {
		h := capped(t, caps, httpcap.Config{Wait: time.Second, FailOpen: true}, func(http.ResponseWriter, *http.Request) {
			t.Error("a request ran without a permit")
		})
		w.Stall("enter")
		code := make(chan int, 1)
		go func() { code <- ask(t, h).Code }()
		time.Sleep(100 * time.Millisecond)
		redistest.NoError(t, caps.SetLimit(t.Context(), "another key", 2))
		redistest.Expect(t, <-code, http.StatusTooManyRequests, "status %d")
		w.Heal()
		captest.WantState(t, caps, 0, 0)
	})
}

// A client that leaves before the answer of a Redis far away can come does not say that Redis is away.
func TestImpatientClientIsNoOutage(t *testing.T) {
	onWire(t, func(t *testing.T, w *harness.Wire, caps *semaphore.Semaphore) {
		h := capped(t, caps, httpcap.Config{}, func(http.ResponseWriter, *http.Request) {})
		w.Stall()
		time.AfterFunc(400*time.Millisecond, w.Heal)
		ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer leave()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		redistest.Require(t, ctx.Err(), context.DeadlineExceeded, "the client left because of %v")
		wantAnswer(t, h, http.StatusOK, soon)
	})
}

// A Wait that is shorter than a round trip does not say that Redis is away: others of the client go on.
func TestShortWaitIsNoOutage(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Mini(t).Addr())
	p.Delay(100*time.Millisecond, 100*time.Millisecond)
	caps := captest.New(t, p.Client(), semaphore.Config{Limit: 1})
	h := capped(t, caps, httpcap.Config{Wait: 20 * time.Millisecond}, nil)
	another := func() { redistest.NoError(t, redistest.Must(caps.TryAcquire(t.Context(), "another"))(t).Release()) }
	another()
	redistest.Require(t, ask(t, h).Code, http.StatusServiceUnavailable, "status %d")
	another()
}

// A lost lease ends the work, and not with FailOpen: an outage would cut long requests after a TTL.
func TestLossEndsTheWorkUnlessFailOpen(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		lost := make(chan struct{})
		x := newBusy(t, redistest.MiniClient(t), semaphore.Config{Limit: 1, Observer: harness.ObserverFunc(func(e leasehold.Event) {
			if e.Kind == leasehold.EventLeaseEnded {
				close(lost)
			}
		})}, httpcap.Config{FailOpen: failOpen})
		captest.Revoke(t, x.caps)
		redistest.Get(t, "the loss", lost)
		if failOpen {
			redistest.NoError(t, x.ctx.Err())
		} else {
			redistest.Get(t, "the end of the work", x.ctx.Done())
			redistest.WantErr(t, context.Cause(x.ctx), leasehold.ErrLost)
		}
		x.finish(t)
	}
}
