// Package bench measures leasehold against floors that no design can beat: the
// same client, the same server, the same run. Figures mean something as ratios
// and differences within one run; absolute times are the machine's.
//
// Run it with: make bench
package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// server starts a server of its own for a benchmark, the oldest version
// installed.
func server(b *testing.B) *redistest.Server {
	b.Helper()
	redistest.NeedServers(b)
	return redistest.StartServer(b, redistest.Installed()[0])
}

func locks(b *testing.B, rdb redis.UniversalClient) *mutex.Mutex {
	b.Helper()
	m, err := mutex.New(rdb, mutex.Config{Name: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

func permits(b *testing.B, rdb redis.UniversalClient, limit int) *semaphore.Semaphore {
	b.Helper()
	s, err := semaphore.New(rdb, semaphore.Config{Name: "bench", Limit: limit})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// noop is the floor's script.
var noop = redis.NewScript("return 1")

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1000
}

// runner is one competitor of an interleaved run.
type runner struct {
	name string
	pair func() error
}

// interleave runs the competitors in turn, b.N times a chunk each, and reports
// the median time of a pair for each, and the difference to the first.
func interleave(b *testing.B, all []runner) {
	const chunk = 10
	times := make([][]time.Duration, len(all))
	for b.Loop() {
		for i, r := range all {
			began := time.Now()
			for range chunk {
				if err := r.pair(); err != nil {
					b.Fatalf("%s: %v", r.name, err)
				}
			}
			times[i] = append(times[i], time.Since(began)/chunk)
		}
	}
	b.ReportMetric(0, "ns/op") // of the whole round: means nothing
	floor := median(times[0])
	for i, r := range all {
		b.ReportMetric(median(times[i]), r.name+"-µs")
		if i > 0 {
			b.ReportMetric(median(times[i])-floor, r.name+"-over-floor-µs")
		}
	}
}
