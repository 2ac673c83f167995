package httpcap_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }

const tenant = captest.Tenant

func byTenant(*http.Request) string { return tenant }

func capped(t testing.TB, caps *semaphore.Semaphore, cfg httpcap.Config, next http.HandlerFunc) http.Handler {
	t.Helper()
	if cfg.Key == nil {
		cfg.Key = byTenant
	}
	middleware := redistest.Must(httpcap.New(caps, cfg))(t)
	return middleware(next)
}

// serve starts a real server, which logs nothing, and returns its URL.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		srv.Close()
	})
	return srv.URL
}

type answer struct {
	*http.Response
	body string
	err  error
	took time.Duration
}

func get(ctx context.Context, url string) (a answer) {
	began := time.Now()
	defer func() { a.took = time.Since(began) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{err: err}
	}
	return do(req)
}

func do(req *http.Request) answer {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{Response: res, body: string(body), err: err}
}

// wantStatus sends a request and checks the status of its answer.
func wantStatus(t *testing.T, url string, want int) answer {
	t.Helper()
	a := get(t.Context(), url)
	redistest.WantErr(t, a.err)
	redistest.Require(t, a.StatusCode, want, "status %d")
	return a
}

// blocker is a handler that runs until it is told to end.
type blocker struct{ *captest.Blocker }

func newBlocker(t testing.TB) blocker { return blocker{captest.NewBlocker(t)} }

func (b blocker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.Work(r.Context()) == nil {
		_, _ = io.WriteString(w, "done")
	}
}

// inBackground sends a request and returns where its answer will be.
func inBackground(ctx context.Context, url string) <-chan answer {
	answers := make(chan answer, 1)
	go func() { answers <- get(ctx, url) }()
	return answers
}

// busy is a capped server, one of whose requests works until Release.
type busy struct {
	blocker
	caps  *semaphore.Semaphore
	h     http.Handler
	url   string
	first <-chan answer   // of that request
	ctx   context.Context // of its work
}

func newBusy(t testing.TB, rdb redis.UniversalClient, sem semaphore.Config, cfg httpcap.Config) *busy {
	t.Helper()
	x := &busy{blocker: newBlocker(t), caps: captest.New(t, rdb, sem)}
	x.h = capped(t, x.caps, cfg, x.ServeHTTP)
	x.url = serve(t, x.h)
	x.first = x.send(t)
	x.ctx = redistest.Get(t, "the first request", x.Started)
	return x
}

func (x *busy) send(t testing.TB) <-chan answer { return inBackground(t.Context(), x.url) }

// finish ends the work. The first request and others must be answered with 200, and no permit be left in use.
func (x *busy) finish(t testing.TB, others ...<-chan answer) {
	t.Helper()
	x.Release()
	for _, answers := range append(others, x.first) {
		a := redistest.Get(t, "an answer", answers)
		redistest.WantErr(t, a.err)
		redistest.Expect(t, a.StatusCode, http.StatusOK, "status %d")
	}
	captest.WantState(t, x.caps, 0, 0)
}
