package chitest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// With chi, a middleware of With runs after the routing and one of Use before it. Then a key of
// the route's parameters is empty, and there is no cap.
func TestChi(t *testing.T) {
	caps := redistest.Must(semaphore.New(leaseholdtest.Client(t), semaphore.Config{Name: "chi", Limit: 1}))(t)
	defer caps.Close(t.Context())
	byTenant := func(r *http.Request) string { return chi.URLParam(r, "tenant") }
	capped := redistest.Must(httpcap.New(caps, httpcap.Config{Key: byTenant}))(t)
	held := redistest.Must(caps.Acquire(t.Context(), "acme"))(t)
	defer held.Release()
	var pattern string
	note := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			pattern = chi.RouteContext(r.Context()).RoutePattern()
		})
	}
	handler := func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(chi.URLParam(r, "tenant"))) }
	routes := map[string]*chi.Mux{"with": chi.NewRouter(), "use": chi.NewRouter()}
	routes["with"].Use(note)
	routes["with"].With(capped).Get("/tenants/{tenant}", handler)
	routes["use"].Use(note, capped)
	routes["use"].Get("/tenants/{tenant}", handler)

	for _, c := range []struct {
		way, tenant string
		want        int
	}{
		{"with", "acme", http.StatusTooManyRequests},
		{"with", "globex", http.StatusOK},
		{"use", "acme", http.StatusOK}, // as the documentation says: no cap
	} {
		w := httptest.NewRecorder()
		routes[c.way].ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/tenants/"+c.tenant, nil))
		redistest.Check(t, w.Code == c.want, "%s, tenant %s: status %d; want %d", c.way, c.tenant, w.Code, c.want)
		redistest.Check(t, w.Code != http.StatusOK || w.Body.String() == c.tenant,
			"%s: the handler saw the tenant %q", c.way, w.Body)
		redistest.Check(t, pattern == "/tenants/{tenant}", "%s: the pattern is %q outside", c.way, pattern)
	}
}
