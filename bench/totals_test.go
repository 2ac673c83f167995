package bench

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// BenchmarkTotals is what a pair costs the server (EVALSHA, by its own account) in a family with a total, beside
// one without, and how many turns a second the family's one slot carries: of a lone caller, and of 256 goroutines
// of two handles, where all find a permit and where 40 keys wait for a total of 20.
func BenchmarkTotals(b *testing.B) {
	srv := harness.StartOwn(b)
	stats := srv.Client()
	for _, r := range []struct {
		name                     string
		limit, total, goroutines int
	}{
		{"plain-lone", 1000, 0, 1},
		{"total-lone", 1000, 1000, 1},
		{"plain-free", 1000, 0, 256},
		{"total-free", 1000, 1000, 256},
		{"total-40-keys-wait", 10, 20, 256},
	} {
		b.Run(r.name, func(b *testing.B) {
			var handles [2]*semaphore.Semaphore
			for i := range handles {
				handles[i] = permits(b, srv.Client(), r.limit, func(c *semaphore.Config) { c.Name, c.Total = r.name, r.total })
			}
			micros, _ := harness.ServerMicros(b, stats, "evalsha")
			var next atomic.Int64
			var all sync.WaitGroup
			began := time.Now()
			for i := range r.goroutines {
				h, key := handles[i%2], "k"+strconv.Itoa(i%40)
				all.Go(func() {
					for next.Add(1) <= int64(b.N) {
						redistest.NoError(b, permitTurn(context.Background(), h, key, nil))
					}
				})
			}
			all.Wait()
			took := time.Since(began).Seconds()
			after, _ := harness.ServerMicros(b, stats, "evalsha")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric((after-micros)/float64(b.N), "server-µs")
			b.ReportMetric(float64(b.N)/took, "turns/s")
		})
	}
}
