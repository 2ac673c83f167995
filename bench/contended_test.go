package bench

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// One key, 64 goroutines of four clients, each holding it for 1 ms: turns beside
// the same loop on a local sync.Mutex, script calls a turn, and how evenly the
// turns fall. A benchmark's op is a tenth of a second of each.
func BenchmarkContended(b *testing.B) {
	const clients, goroutines, hold = 4, 16, time.Millisecond
	srv := server(b)
	stats := srv.Client()
	span := time.Duration(b.N) * 100 * time.Millisecond

	var local sync.Mutex
	floor := turns(clients*goroutines, span, func(ctx context.Context) error {
		local.Lock()
		defer local.Unlock()
		time.Sleep(hold)
		return nil
	})

	handles := make([]func(ctx context.Context) error, clients)
	for i := range handles {
		m := locks(b, srv.Client())
		handles[i] = func(ctx context.Context) error {
			l, err := m.Lock(ctx, "k")
			if err != nil {
				return err
			}
			time.Sleep(hold)
			return l.Unlock()
		}
	}
	var next atomic.Int32
	before := redistest.Commandstats(b, stats)
	ours := turns(clients*goroutines, span, func(ctx context.Context) error {
		return handles[int(next.Add(1))%clients](ctx)
	})
	after := redistest.Commandstats(b, stats)

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(sum(ours))/float64(sum(floor)), "of-local-turns")
	b.ReportMetric(float64(slices.Min(ours))/float64(slices.Max(ours)), "fewest/most")
	calls := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]
	b.ReportMetric(float64(calls)/float64(sum(ours)), "calls/turn")
}

// turns runs turn in n goroutines for span and counts each one's turns.
func turns(n int, span time.Duration, turn func(ctx context.Context) error) []int {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	counts := make([]int, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if turn(ctx) == nil {
					counts[i]++
				}
			}
		})
	}
	all.Wait()
	return counts
}

func sum(all []int) (n int) {
	for _, i := range all {
		n += i
	}
	return n
}
