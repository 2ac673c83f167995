package httpcap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
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

// A request is refused at the end of its wait, and told when to come back. The bound of the wait is none of the work:
// the granted request waited, too.
func TestRefusalSaysWhenToComeBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		const wait = 200 * time.Millisecond
		x := newBusy(t, target.Client(t), semaphore.Config{Limit: 1}, httpcap.Config{Wait: wait})
		a := wantStatus(t, x.url, http.StatusTooManyRequests)
		redistest.AtLeast(t, a.took, wait, "refused after %v")
		redistest.Expect(t, context.Cause(x.ctx), nil, "the ctx of a granted request ended: %v")
		seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
		redistest.Check(t, err == nil && seconds >= 1 && seconds <= 30,
			"Retry-After is %q; want whole seconds, 1 to the TTL", a.Header.Get("Retry-After"))
		redistest.Expect(t, a.Header.Get("Content-Type"), "application/problem+json", "the content type is %q")
		var problem struct {
			Title  string
			Status int
		}
		err = json.Unmarshal([]byte(a.body), &problem)
		redistest.Check(t, err == nil && problem.Status == 429 && problem.Title != "", "the body is %q", a.body)
		x.finish(t)
		wantStatus(t, x.url, http.StatusOK) // a client that comes back is served
	})
}

// Requests without a key need no permit, and the others as many as Permits says.
func TestNoKeyNeedsNoPermit(t *testing.T) {
	x := newBusy(t, redistest.MiniClient(t), semaphore.Config{Limit: 3}, httpcap.Config{
		Key:     func(r *http.Request) string { return r.URL.Query().Get("tenant") },
		Permits: func(*http.Request) int { return 2 },
	})
	second, keyed := x.send(t), inBackground(t.Context(), x.url+"?tenant="+tenant)
	for range 2 {
		redistest.Get(t, "another request", x.Started)
	}
	captest.WantState(t, x.caps, 2, 0)
	wantStatus(t, x.url+"?tenant="+tenant, http.StatusTooManyRequests)
	x.finish(t, second, keyed)
}

// A request that finds the queue full is refused. One whose client left while it waited is not served, not even with
// FailOpen, and leaves its place to the next one.
func TestFullQueueAndClientThatLeft(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		seen := make(chan error, 2) // the client that leaves is refused, too
		x := newBusy(t, target.Client(t), semaphore.Config{Limit: 1, MaxWaiters: 1}, httpcap.Config{
			Wait: time.Minute, FailOpen: true,
			Refused: func(w http.ResponseWriter, _ *http.Request, err error) {
				seen <- err
				w.WriteHeader(http.StatusTeapot)
			},
		})
		ctx, leave := context.WithCancel(t.Context())
		second := inBackground(ctx, x.url)
		captest.WantState(t, x.caps, 1, 1)
		a := wantStatus(t, x.url, http.StatusTeapot)
		redistest.Check(t, a.Header.Get("Retry-After") != "", "there is no Retry-After")
		redistest.WantErr(t, redistest.Get(t, "the refusal", seen), leasehold.ErrQueueFull)
		leave()
		redistest.WantErr(t, redistest.Get(t, "the second answer", second).err, context.Canceled)
		captest.WantState(t, x.caps, 1, 0)
		third := x.send(t)
		captest.WantState(t, x.caps, 1, 1)
		x.finish(t, third)
		redistest.Expect(t, len(x.Started), 1, "%d more requests were served")
	})
}

// A ctx that panics as it ends may end its request, but no process.
func TestCtxThatEndsBadly(t *testing.T) {
	x := newBusy(t, redistest.MiniClient(t), semaphore.Config{Limit: 1}, httpcap.Config{Wait: time.Minute})
	ended := make(chan struct{})
	ctx := harness.EndedBadly{Context: t.Context(), Ended: make(chan struct{}), How: func() error { panic("Err") }}
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		x.h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	}()
	captest.WantState(t, x.caps, 1, 1)
	close(ctx.Ended)
	redistest.Get(t, "the end of the second request", ended)
	x.finish(t)
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
			a := wantStatus(t, srv.URL+"/a%0Ab", http.StatusInternalServerError) // one line all the same
			srv.Close()
			redistest.Check(t, strings.Contains(logged.String(), "httpcap: GET /a%0Ab: ") && !strings.Contains(a.body, tenant),
				"%s: logged %q, answered %q", name, logged.String(), a.body)
		}
	}
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

// The server removes the temporary files of the request that it made, and knows nothing of copies.
func TestUploadsLeaveNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int { return len(redistest.Must(os.ReadDir(dir))(t)) }
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	var outside string
	inside := capped(t, caps, httpcap.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		redistest.NoError(t, r.ParseMultipartForm(1))
		redistest.Check(t, files() != 0, "the upload is in no file: this test tests nothing")
	})
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside.ServeHTTP(w, r)
		outside = r.FormValue("name")
	}))
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_ = form.WriteField("name", "value")
	part := redistest.Must(form.CreateFormFile("file", "large.bin"))(t)
	_, _ = io.Copy(part, strings.NewReader(strings.Repeat("x", 1<<20)))
	_ = form.Close()
	req := redistest.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, &body))(t)
	req.Header.Set("Content-Type", form.FormDataContentType())
	a := do(req)
	redistest.CheckNow(t, a.err == nil && a.StatusCode == http.StatusOK, "%v, %v", a.Response, a.err)
	redistest.Eventually(t, "no temporary file left", func() bool { return files() == 0 })
	redistest.Expect(t, outside, "value", "a middleware outside sees the field as %q")
}

// A log outside of the cap names the route that a mux inside has found.
func TestOuterMiddlewareSeesThePattern(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /panics/{id}", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	patterns := make(chan string, 10) // a client may repeat a GET whose connection broke
	inside := capped(t, caps, httpcap.Config{}, mux.ServeHTTP)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { patterns <- r.Pattern }()
		inside.ServeHTTP(w, r)
	}))
	wantStatus(t, url+"/users/7", http.StatusOK)
	redistest.Expect(t, <-patterns, "GET /users/{id}", "the pattern is %q outside")
	get(t.Context(), url+"/panics/7")
	redistest.Expect(t, <-patterns, "GET /panics/{id}", "the pattern is %q outside after a panic")
}
