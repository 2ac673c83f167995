package guide

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/semaphore"
)

// newCaps makes the cap of each tenant's requests. One that finds no room waits for
// 2 s at most; a request that is under way is not bounded by that.
func newCaps(rdb redis.UniversalClient, limit int) (*semaphore.Semaphore, error) {
	return semaphore.New(rdb, semaphore.Config{Name: "requests", Limit: limit, MaxWait: 2 * time.Second})
}

// limited answers 429 to a tenant that has as many requests under way as its cap
// allows, in all processes together, and for as long as a request may wait.
func limited(caps *semaphore.Semaphore, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := caps.Acquire(r.Context(), r.Header.Get("X-Tenant"))
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
