package httpcap_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// behindProxy starts an embedded server behind a proxy that can fall silent.
func behindProxy(t *testing.T) (*redistest.Proxy, *redis.Client) {
	p := redistest.NewProxy(t, redistest.Mini(t).Addr())
	return p, p.Client(func(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond })
}

const (
	// soon bounds an answer that waits for a probe of Redis at most, on a busy machine.
	soon = 600 * time.Millisecond
	// known bounds how long a semaphore takes to notice that Redis is silent, here.
	known = 9 * time.Second
)

// A finished answer does not wait for a Release that Redis does not confirm.
func TestAnswerLeavesWhileRedisHangs(t *testing.T) {
	t.Parallel()
	p, rdb := behindProxy(t)
	caps := captest.New(t, rdb, semaphore.Config{Limit: 1})
	began := make(chan time.Time, 1)
	url := serve(t, capped(t, caps, httpcap.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		p.Cut(true, true)
		<-time.After(20 * time.Millisecond) // longer than a moment, in which Redis is believed to be there
		began <- time.Now()
		_, _ = io.WriteString(w, "done")
	}))
	wantStatus(t, url, http.StatusOK)
	if took := time.Since(<-began); took > soon {
		t.Errorf("the answer came %v after the handler was done; want at most %v", took, soon)
	}
	p.Heal()
	captest.WantState(t, caps, 0, 0) // it is given back in the background
}

func TestHungRedisIs503AndThenKnown(t *testing.T) {
	t.Parallel()
	p, rdb := behindProxy(t)
	caps := captest.New(t, rdb, semaphore.Config{Limit: 1})
	url := serve(t, capped(t, caps, httpcap.Config{}, func(http.ResponseWriter, *http.Request) {}))
	wantStatus(t, url, http.StatusOK)
	p.Cut(true, true)
	if a := wantStatus(t, url, http.StatusServiceUnavailable); a.took > known {
		t.Errorf("the first answer took %v; want at most %v", a.took, known)
	}
	for range 20 {
		if a := wantStatus(t, url, http.StatusServiceUnavailable); a.took > soon {
			t.Errorf("a later answer took %v; want at most %v", a.took, soon)
		}
	}
	p.Heal()
	// A probe at most 250 ms old may be under way; the next request sends another one.
	redistest.Eventually(t, "a request is served again", func() bool { return get(t.Context(), url).StatusCode == http.StatusOK })
	for range 5 {
		wantStatus(t, url, http.StatusOK)
	}
}

func TestFailOpenLetsThrough(t *testing.T) {
	t.Parallel()
	p, rdb := behindProxy(t)
	caps := captest.New(t, rdb, semaphore.Config{Limit: 1})
	b := newBlocker(t)
	url := serve(t, capped(t, caps, httpcap.Config{FailOpen: true}, b.ServeHTTP))
	p.Cut(true, true)
	var answers []<-chan answer
	for i := range 5 {
		began := time.Now()
		answers = append(answers, inBackground(t.Context(), url))
		redistest.Get(t, "a request without a permit", b.started)
		if took := time.Since(began); i > 0 && took > soon {
			t.Errorf("request %d was let through after %v; want at most %v", i, took, soon)
		}
	}
	b.release()
	for _, a := range answers {
		if a := redistest.Get(t, "an answer", a); a.err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a.Response, a.err)
		}
	}
	p.Heal()
	// Only a server that is reachable refuses.
	held := new(semaphore.Lease)
	redistest.Eventually(t, "a permit", func() (ok bool) {
		l, err := caps.TryAcquire(t.Context(), tenant)
		if err == nil {
			held = l
		}
		return err == nil
	})
	redistest.Eventually(t, "a request is refused again", func() bool {
		return get(t.Context(), url).StatusCode == http.StatusTooManyRequests
	})
	redistest.NoError(t, held.Release())
}

// A request whose client left while Redis was asked is not served, not even with FailOpen.
func TestClientThatLeftInAnOutageIsNotServed(t *testing.T) {
	t.Parallel()
	p, rdb := behindProxy(t)
	caps := captest.New(t, rdb, semaphore.Config{Limit: 1})
	served, asked := false, make(chan struct{})
	h := capped(t, caps, httpcap.Config{
		FailOpen: true, Wait: time.Minute,
		Permits: func(*http.Request) int { close(asked); return 1 },
	}, func(http.ResponseWriter, *http.Request) { served = true })
	p.Cut(true, true)
	ctx, leave := context.WithCancel(t.Context())
	w, answered := httptest.NewRecorder(), make(chan struct{})
	go func() {
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		close(answered)
	}()
	redistest.Get(t, "the request", asked)
	leave()
	redistest.Get(t, "the answer", answered)
	redistest.Check(t, !served && w.Code == http.StatusServiceUnavailable, "served: %v, status %d", served, w.Code)
	p.Heal()
}

// A short Wait bounds what an unknown outage costs, too.
func TestWaitBoundsTheOutage(t *testing.T) {
	t.Parallel()
	p, rdb := behindProxy(t)
	caps := captest.New(t, rdb, semaphore.Config{Limit: 1})
	url := serve(t, capped(t, caps, httpcap.Config{Wait: time.Second, FailOpen: true}, func(http.ResponseWriter, *http.Request) {}))
	wantStatus(t, url, http.StatusOK)
	p.Cut(true, true)
	if a := wantStatus(t, url, http.StatusOK); a.took > time.Second+soon {
		t.Errorf("the first request was let through after %v", a.took)
	}
	if a := wantStatus(t, url, http.StatusOK); a.took > soon {
		t.Errorf("the second request was let through after %v", a.took)
	}
	p.Heal()
}

// A server to which no connection comes about is away, too, although nothing could be sent to it.
func TestWaitBoundsTheOutageWithoutAConnection(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-stop:
			case <-ctx.Done():
			}
			return nil, context.DeadlineExceeded
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	caps := captest.New(t, rdb, semaphore.Config{Limit: 1})
	t.Cleanup(func() { close(stop) })
	url := serve(t, capped(t, caps, httpcap.Config{Wait: time.Second}, func(http.ResponseWriter, *http.Request) {}))
	if a := wantStatus(t, url, http.StatusServiceUnavailable); a.took > time.Second+soon {
		t.Errorf("the first answer took %v", a.took)
	}
	if a := wantStatus(t, url, http.StatusServiceUnavailable); a.took > soon {
		t.Errorf("the second answer took %v", a.took)
	}
}

// lossObserver tells when a lease has ended by itself.
type lossObserver chan struct{}

func (o lossObserver) Observe(ev leasehold.Event) {
	if ev.Kind == leasehold.EventLeaseEnded {
		close(o)
	}
}

func TestLossEndsTheWorkUnlessFailOpen(t *testing.T) {
	for name, failOpen := range map[string]bool{"fail closed": false, "fail open": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, rdb := behindProxy(t)
			lost := make(lossObserver)
			caps := captest.New(t, rdb, semaphore.Config{Limit: 1, TTL: 300 * time.Millisecond, Observer: lost})
			causes := make(chan error, 1)
			url := serve(t, capped(t, caps, httpcap.Config{FailOpen: failOpen}, func(_ http.ResponseWriter, r *http.Request) {
				p.Cut(true, true)
				<-lost
				if !failOpen {
					<-r.Context().Done()
				}
				causes <- context.Cause(r.Context())
			}))
			a := wantStatus(t, url, http.StatusOK)
			cause := redistest.Get(t, "the cause", causes)
			redistest.Check(t, !failOpen || cause == nil, "an outage cut the work: %v", cause)
			if !failOpen {
				redistest.WantErr(t, cause, leasehold.ErrLost)
			}
			_ = a
			p.Heal()
		})
	}
}
