package httpcap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := httpcap.New(nil, httpcap.Config{Wait: -time.Second})
	redistest.WantErr(t, err, leasehold.ErrInvalid)
	redistest.WantText(t, err, "httpcap", "semaphore is nil", "Key is nil", "Wait is -1s; want 0")
}

func TestRefusalSaysWhenToComeBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		b := newBlocker(t)
		url := serve(t, capped(t, caps, httpcap.Config{}, b.ServeHTTP))
		first := inBackground(t.Context(), url)
		redistest.Get(t, "the first request", b.Started)

		a := wantStatus(t, url, http.StatusTooManyRequests)
		seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
		redistest.Check(t, err == nil && seconds >= 1 && seconds <= 30,
			"Retry-After is %q; want whole seconds, 1 to the TTL", a.Header.Get("Retry-After"))
		redistest.Expect(t, a.Header.Get("Content-Type"), "application/problem+json", "the content type is %q")
		var problem struct {
			Title  string
			Status int
		}
		if err := json.Unmarshal([]byte(a.body), &problem); err != nil || problem.Status != 429 || problem.Title == "" {
			t.Errorf("the body is %q", a.body)
		}
		b.Release()
		if a := redistest.Get(t, "the first answer", first); a.err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a.StatusCode, a.err)
		}
		captest.WantState(t, caps, 0, 0)
		wantStatus(t, url, http.StatusOK) // a client that comes back is served
	})
}

func TestWaitingRequestIsServedInTime(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		b := newBlocker(t)
		url := serve(t, capped(t, caps, httpcap.Config{Wait: time.Minute}, b.ServeHTTP))
		first := inBackground(t.Context(), url)
		redistest.Get(t, "the first request", b.Started)
		second := inBackground(t.Context(), url)
		captest.WantState(t, caps, 1, 1)
		b.Release()
		for _, answers := range []<-chan answer{first, second} {
			if a := redistest.Get(t, "an answer", answers); a.err != nil || a.StatusCode != http.StatusOK {
				t.Fatal(a.StatusCode, a.err)
			}
		}
		captest.WantState(t, caps, 0, 0)
	})
}

func TestWaitIsBounded(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		const wait = 200 * time.Millisecond
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		b := newBlocker(t)
		url := serve(t, capped(t, caps, httpcap.Config{Wait: wait}, b.ServeHTTP))
		// The first call of a handle also connects, which must not use up the wait.
		redistest.Must(caps.Inspect(t.Context(), tenant))(t)
		first := inBackground(t.Context(), url)
		ctx := redistest.Get(t, "the first request", b.Started)
		a := wantStatus(t, url, http.StatusTooManyRequests)
		redistest.Check(t, a.took >= wait && a.Header.Get("Retry-After") != "",
			"refused after %v with Retry-After %q", a.took, a.Header.Get("Retry-After"))
		// The bound of the wait is none of the work: the granted request waited, too.
		redistest.Expect(t, context.Cause(ctx), nil, "the ctx of a granted request ended: %v")
		b.Release()
		redistest.Get(t, "the first answer", first)
		captest.WantState(t, caps, 0, 0)
	})
}

func TestFullQueueRefuses(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1, MaxWaiters: 1})
	b := newBlocker(t)
	var seen error
	url := serve(t, capped(t, caps, httpcap.Config{
		Wait: time.Minute,
		Refused: func(w http.ResponseWriter, _ *http.Request, err error) {
			seen = err
			w.WriteHeader(http.StatusTeapot)
		},
	}, b.ServeHTTP))
	first := inBackground(t.Context(), url)
	redistest.Get(t, "the first request", b.Started)
	second := inBackground(t.Context(), url)
	captest.WantState(t, caps, 1, 1)
	if a := wantStatus(t, url, http.StatusTeapot); a.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	redistest.WantErr(t, seen, leasehold.ErrQueueFull)
	b.Release()
	redistest.Get(t, "the first answer", first)
	redistest.Get(t, "the second answer", second)
}

func TestNoKeyNeedsNoPermit(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	b := newBlocker(t)
	url := serve(t, capped(t, caps, httpcap.Config{Key: func(r *http.Request) string { return r.URL.Query().Get("tenant") }}, b.ServeHTTP))
	var answers []<-chan answer
	for range 3 {
		answers = append(answers, inBackground(t.Context(), url))
		redistest.Get(t, "a request without a key", b.Started)
	}
	answers = append(answers, inBackground(t.Context(), url+"?tenant="+tenant))
	redistest.Get(t, "a request with a key", b.Started)
	wantStatus(t, url+"?tenant="+tenant, http.StatusTooManyRequests)
	b.Release()
	for _, a := range answers {
		redistest.Get(t, "an answer", a)
	}
}

func TestWeights(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 3})
	b := newBlocker(t)
	url := serve(t, capped(t, caps, httpcap.Config{Permits: func(*http.Request) int { return 2 }}, b.ServeHTTP))
	first := inBackground(t.Context(), url)
	redistest.Get(t, "the first request", b.Started)
	captest.WantState(t, caps, 2, 0)
	wantStatus(t, url, http.StatusTooManyRequests)
	b.Release()
	redistest.Get(t, "the first answer", first)
}

// A request that can never be served is a mistake in the program. It is not let through, not
// even with FailOpen, and the server's own log says which mistake it is.
func TestMistakeIsAnError(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	for name, cfg := range map[string]httpcap.Config{
		"n is 0":          {Permits: func(*http.Request) int { return 0 }},
		"limit":           {Permits: func(*http.Request) int { return 2 }},
		"key of 600 byte": {Key: func(*http.Request) string { return strings.Repeat("k", 600) }},
	} {
		for _, cfg.FailOpen = range []bool{false, true} {
			var logged bytes.Buffer
			srv := httptest.NewUnstartedServer(capped(t, caps, cfg, func(http.ResponseWriter, *http.Request) {
				t.Errorf("%s: the handler ran", name)
			}))
			srv.Config.ErrorLog = log.New(&logged, "", 0)
			srv.Start()
			a := wantStatus(t, srv.URL, http.StatusInternalServerError)
			srv.Close()
			redistest.Check(t, strings.Contains(logged.String(), "httpcap: GET /: ") && !strings.Contains(a.body, tenant),
				"%s: logged %q, answered %q", name, logged.String(), a.body)
		}
	}
}

// A request whose client left while it waited is not served, not even with FailOpen, and leaves
// its place to the next one.
func TestClientThatLeftIsNotServed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		b := newBlocker(t)
		url := serve(t, capped(t, caps, httpcap.Config{Wait: time.Minute, FailOpen: true}, b.ServeHTTP))
		first := inBackground(t.Context(), url)
		redistest.Get(t, "the first request", b.Started)
		ctx, leave := context.WithCancel(t.Context())
		second := inBackground(ctx, url)
		captest.WantState(t, caps, 1, 1)
		leave()
		if a := redistest.Get(t, "the second answer", second); !errors.Is(a.err, context.Canceled) {
			t.Fatalf("%v", a.err)
		}
		captest.WantState(t, caps, 1, 0)
		b.Release()
		redistest.Get(t, "the first answer", first)
		captest.WantState(t, caps, 0, 0)
		redistest.Expect(t, len(b.Started), 0, "%d more requests were served")
	})
}

// Over HTTP/1, net/http does not see that the client left before the body was read, so only Wait
// ends the wait. The documentation says so.
func TestWaitBoundsARequestWhoseBodyWasNotRead(t *testing.T) {
	t.Parallel()
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	held := redistest.Must(caps.Acquire(t.Context(), tenant))(t)
	refused := make(chan error, 1)
	url := serve(t, capped(t, caps, httpcap.Config{
		Wait:    2 * time.Second,
		Refused: func(_ http.ResponseWriter, r *http.Request, _ error) { refused <- r.Context().Err() },
	}, newBlocker(t).ServeHTTP))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan answer, 1)
	req := redistest.Must(http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(strings.Repeat("b", 100_000))))(t)
	go func() { left <- do(req) }()
	captest.WantState(t, caps, 1, 1)
	leave()
	redistest.Get(t, "the client's end", left)
	redistest.NoError(t, redistest.Get(t, "the end of the wait", refused))
	redistest.NoError(t, held.Release())
	captest.WantState(t, caps, 0, 0)
}

// The ctx of a request ends with its lease.
func TestContextEndsWithTheLease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		started, causes := make(chan struct{}, 1), make(chan error, 1)
		url := serve(t, capped(t, caps, httpcap.Config{}, func(_ http.ResponseWriter, r *http.Request) {
			started <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-time.After(redistest.Soon):
			}
			causes <- context.Cause(r.Context())
		}))
		first := inBackground(t.Context(), url)
		redistest.Get(t, "the request", started)
		captest.Revoke(t, caps)
		redistest.Get(t, "the answer", first)
		redistest.WantErr(t, redistest.Get(t, "the cause", causes), leasehold.ErrRevoked)
	})
}

func TestClosedHandleIsUnavailable(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	redistest.WantErr(t, caps.Close(t.Context()))
	var seen error
	h := capped(t, caps, httpcap.Config{Unavailable: func(w http.ResponseWriter, _ *http.Request, err error) {
		seen = err
		w.WriteHeader(http.StatusBadGateway)
	}}, nil)
	wantStatus(t, serve(t, h), http.StatusBadGateway)
	redistest.WantErr(t, seen, leasehold.ErrClosed)
}

// A ctx that panics as it ends may end its request, but no process.
func TestCtxThatEndsBadly(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	b := newBlocker(t)
	h := capped(t, caps, httpcap.Config{Wait: time.Minute}, b.ServeHTTP)
	_ = inBackground(t.Context(), serve(t, h))
	redistest.Get(t, "the first request", b.Started)
	ended := make(chan struct{})
	ctx := harness.EndedBadly{Context: t.Context(), Ended: make(chan struct{}), How: func() error { panic("Err") }}
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	}()
	captest.WantState(t, caps, 1, 1)
	close(ctx.Ended)
	redistest.Get(t, "the end of the second request", ended)
	b.Release()
	captest.WantState(t, caps, 0, 0)
}
