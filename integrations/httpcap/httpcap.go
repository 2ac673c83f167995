// Package httpcap caps the requests that net/http handlers serve at the same time, per key and
// in all processes together.
//
//	capped, err := httpcap.New(caps, httpcap.Config{
//		Key: func(r *http.Request) string { return r.Header.Get("X-Tenant") },
//	})
//	…
//	mux.Handle("POST /exports", capped(exports))
//
// A request without a permit is answered with 429 and a Retry-After, and with 503 if Redis
// cannot be asked. docs/integrations.md says what happens in between.
package httpcap

import (
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/integrations/internal/gate"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Config configures the middleware of New.
type Config struct {
	// Key returns the key whose permits a request needs, for example its tenant. "": the request needs no permit. Key
	// must not block. It is required. A key of path values (Request.PathValue, chi.URLParam) is empty in a middleware
	// that runs before the routing: wrap the route's handler instead, with chi by With and not by Use.
	Key func(r *http.Request) string

	// Permits returns how many permits a request needs, 1 to the limit of its key. It is not
	// called for a request without a key, and must not block. nil: each request needs 1.
	Permits func(r *http.Request) int

	// Wait bounds how long a request waits for its permits. The semaphore's MaxWait and MaxWaiters apply too. While an
	// HTTP/1 request with a body waits, net/http does not notice that its client has left, because the body was not
	// read yet: the request then waits until this bound. 0: a request that finds no free permit is refused at once.
	// One shorter than a round trip is over before Redis can answer, which looks like an outage: see FailOpen.
	Wait time.Duration

	// FailOpen serves requests without permits while Redis cannot be asked. Such requests are late by the time in which
	// the semaphore notices that, which is up to 1.2 s if the server is gone and 5 s or more if it hangs; Wait bounds
	// it too. Later requests are late by at most 0.1 s. With FailOpen the loss of a lease does not end the Context of
	// its request: otherwise an outage would cut long requests after a TTL. A request without an answer within Wait is
	// refused, and not served, if Redis has answered others meanwhile. false: they are answered by Unavailable.
	FailOpen bool

	// Refused answers a request that got no permit in time. The header Retry-After is set already, in whole seconds and
	// at least 1. err matches leasehold.ErrBusy, leasehold.ErrQueueFull or leasehold.ErrRevoked. nil: status 429 and a
	// short application/problem+json.
	Refused func(w http.ResponseWriter, r *http.Request, err error)

	// Unavailable answers a request for which Redis could not be asked, or whose semaphore is
	// closed. err matches leasehold.ErrUnavailable or leasehold.ErrClosed, or is the error of
	// the request's Context alone. nil: status 503 and a short application/problem+json.
	Unavailable func(w http.ResponseWriter, r *http.Request, err error)
}

// New returns a middleware that lets a request through to the next handler when it has permits
// of sem, and gives them back when that handler has returned, panicked or ended its goroutine.
// The request's Context is the lease's: it ends before other requests can be granted the same
// permits. A connection that was hijacked is not counted after its handler has returned.
//
// A request that can never be served (leasehold.ErrInvalid: a key of more than 512 bytes, more
// permits than the limit) is answered with 500, and logged as net/http logs a panic.
//
// New's own error matches leasehold.ErrInvalid and names every bad field. The caller keeps
// sem, and closes it after the server.
//
// The cost is that of an Acquire and a Release: two round trips. A finished answer waits for
// the Release for 100 ms at most, and not at all while Redis is known to be away. But an answer
// of less than 10 ms during which Redis falls silent waits for as long as Release does.
func New(sem *semaphore.Semaphore, cfg Config) (func(http.Handler) http.Handler, error) {
	g, err := gate.New("httpcap", sem, cfg.FailOpen,
		keys.Unless(cfg.Key != nil, "Key", "is nil; want a function"),
		keys.Unless(cfg.Wait >= 0, "Wait", "is %v; want 0 (no wait) or more", cfg.Wait))
	if err != nil {
		return nil, err
	}
	if cfg.Permits == nil {
		cfg.Permits = func(*http.Request) int { return 1 }
	}
	if cfg.Refused == nil {
		cfg.Refused = func(w http.ResponseWriter, _ *http.Request, _ error) { problem(w, http.StatusTooManyRequests) }
	}
	if cfg.Unavailable == nil {
		cfg.Unavailable = func(w http.ResponseWriter, _ *http.Request, _ error) { problem(w, http.StatusServiceUnavailable) }
	}
	return func(next http.Handler) http.Handler {
		return &handler{gate: g, cfg: cfg, next: next}
	}, nil
}

type handler struct {
	gate *gate.Gate
	cfg  Config
	next http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := h.cfg.Key(r)
	if key == "" {
		h.next.ServeHTTP(w, r)
		return
	}
	pass, err := h.gate.Enter(r.Context(), key, h.cfg.Permits(r), h.cfg.Wait)
	if err != nil {
		h.turnAway(w, r, err)
		return
	}
	defer pass.Leave()
	ctx := pass.Context(r.Context())
	if ctx == r.Context() {
		h.next.ServeHTTP(w, r)
		return
	}
	inner := r.WithContext(ctx)
	defer copyBack(r, inner)
	h.next.ServeHTTP(w, inner)
}

// copyBack copies to r what the next handler left on its copy. The server removes the files of the MultipartForm of its
// own request only, and the middleware outside reads the Pattern that a mux inside has found, and the parsed form.
func copyBack(r, inner *http.Request) {
	r.Pattern = inner.Pattern
	r.Form, r.PostForm, r.MultipartForm = inner.Form, inner.PostForm, inner.MultipartForm
}

// turnAway answers a request that got no permit.
func (h *handler) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	switch gate.KindOf(err) {
	case gate.KindRefused:
		seconds := max(1, (gate.RetryAfter(err)+time.Second-1)/time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
		h.cfg.Refused(w, r, err)
	case gate.KindUnavailable:
		h.cfg.Unavailable(w, r, err)
	default:
		logf := log.Printf
		if srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && srv.ErrorLog != nil {
			logf = srv.ErrorLog.Printf
		}
		logf("httpcap: %s %s: %v", r.Method, r.URL.EscapedPath(), err)
		problem(w, http.StatusInternalServerError)
	}
}

// problem writes a status and its name as RFC 9457 has them. It tells nothing of the key.
func problem(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"title":"` + http.StatusText(status) + `","status":` + strconv.Itoa(status) + "}\n"))
}
