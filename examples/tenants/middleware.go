package main

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/semaphore"
)

// gate lets a request of a tenant in, or says why not.
type gate interface {
	Acquire(ctx context.Context, tenant string) (*semaphore.Lease, error)
}

// capped lets as many requests through to next as the gate allows. A request waits for
// its turn as long as the gate's MaxWait; then it is answered with 429 and Retry-After.
// next runs with the lease's Context, which ends if the lease is lost.
func capped(g func() gate, tenant func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := g().Acquire(r.Context(), tenant(r))
		if err != nil {
			refuse(w, err)
			return
		}
		defer lease.Release() // a lease that is lost has ended already
		next.ServeHTTP(w, r.WithContext(lease.Context()))
	})
}

// refuse answers a request that was not let in.
func refuse(w http.ResponseWriter, err error) {
	busy := new(leasehold.BusyError)
	switch {
	case errors.As(err, &busy):
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(busy.RetryAfter.Seconds()))))
		http.Error(w, busy.Error(), http.StatusTooManyRequests)
	case errors.Is(err, leasehold.ErrQueueFull):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests wait already", http.StatusTooManyRequests)
	case errors.Is(err, context.Canceled): // the client has gone
	default:
		http.Error(w, "the service cannot tell how busy it is", http.StatusServiceUnavailable)
	}
}

// The middleware is for these two.
var (
	_ gate = (*semaphore.Semaphore)(nil)
	_ gate = plain{}
)

// plain is what a service without fair shares does: one queue for all tenants.
type plain struct{ all *semaphore.Semaphore }

func (p plain) Acquire(ctx context.Context, _ string) (*semaphore.Lease, error) {
	return p.all.Acquire(ctx, "all")
}

// maxWait is how long a request waits for its turn.
const maxWait = 3 * time.Second
