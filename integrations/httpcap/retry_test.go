package httpcap

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A Retry-After of 0 would invite a client to come back at once, and 1.5 is no Retry-After.
func TestRetryAfterIsRoundedUp(t *testing.T) {
	for after, want := range map[time.Duration]string{1: "1", time.Second: "1", 1001 * time.Millisecond: "2", 90 * time.Second: "90"} {
		h := &handler{cfg: Config{Refused: func(http.ResponseWriter, *http.Request, error) {}}}
		w := httptest.NewRecorder()
		h.turnAway(w, httptest.NewRequest(http.MethodGet, "/", nil), fmt.Errorf("acquire: %w", &leasehold.BusyError{RetryAfter: after}))
		redistest.Expect(t, w.Header().Get("Retry-After"), want, "RetryAfter %v makes %q", after)
	}
}
