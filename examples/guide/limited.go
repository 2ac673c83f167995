package guide

import (
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/semaphore"
)

// limited answers 429 to a tenant that has as many requests under way as its cap
// allows, in all processes together.
func limited(caps *semaphore.Semaphore, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := caps.TryAcquire(r.Context(), r.Header.Get("X-Tenant"))
		var busy *leasehold.BusyError
		switch {
		case errors.As(err, &busy):
			w.Header().Set("Retry-After", fmt.Sprint(int(math.Ceil(busy.RetryAfter.Seconds()))))
			http.Error(w, "too many requests under way", http.StatusTooManyRequests)
			return
		case errors.Is(err, leasehold.ErrInvalid):
			http.Error(w, "bad tenant", http.StatusBadRequest)
			return
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		defer lease.Release()
		next.ServeHTTP(w, r.WithContext(lease.Context()))
	})
}
