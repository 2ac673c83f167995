package httpcap_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The cost of the middleware over that of the semaphore. The replies of the server come out of memory, so that the way
// to it does not hide the difference: a round trip of the loopback varies by more than that. Both are measured in
// turns, and of both the fastest tenth counts, so that other programs do not.
func BenchmarkCost(b *testing.B) {
	rdb := redistest.MiniClient(b)
	rdb.AddHook(redistest.FirstReplies())
	caps := captest.New(b, rdb, semaphore.Config{Limit: 1000, TTL: time.Hour})
	ctx := b.Context()
	bare := func() {
		lease := redistest.Must(caps.TryAcquire(ctx, tenant))(b)
		redistest.WantErr(b, lease.Release())
	}
	h := capped(b, caps, httpcap.Config{}, func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	through := func() { h.ServeHTTP(nil, r) } // an answer other than the handler's would fail
	var of [2][]time.Duration
	for b.Loop() {
		for i, fn := range []func(){bare, through} {
			began := time.Now()
			for range 100 {
				fn()
			}
			of[i] = append(of[i], time.Since(began)/100)
		}
	}
	for i := range of {
		slices.Sort(of[i])
	}
	tenth := len(of[0]) / 10
	b.ReportMetric(float64(of[0][tenth].Nanoseconds()), "ns/bare")
	b.ReportMetric(float64((of[1][tenth] - of[0][tenth]).Nanoseconds()), "ns/over")
	b.ReportMetric(testing.AllocsPerRun(100, through)-testing.AllocsPerRun(100, bare), "allocs/over")
	b.ReportMetric(0, "ns/op")
}
