package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// One key, 64 goroutines of four clients, each holding it for 1 ms: turns beside
// the same loop on a local sync.Mutex, script calls a turn, how evenly the turns
// fall, and how long anybody waits. A benchmark's op is a tenth of a second of
// each.
func BenchmarkContended(b *testing.B) {
	const clients, goroutines, hold = 4, 16, time.Millisecond
	srv := harness.Start(b)
	stats := srv.Client()
	var local sync.Mutex
	floor := harness.Contenders{Name: "local", Turn: func(context.Context, int) error {
		local.Lock()
		defer local.Unlock()
		time.Sleep(hold)
		return nil
	}}
	locks := harness.Spread(clients, func(int) func(context.Context) error {
		m := locks(b, srv.Client())
		return func(ctx context.Context) error {
			l, err := m.Lock(ctx, "k")
			if err != nil {
				return err
			}
			time.Sleep(hold)
			return l.Unlock()
		}
	})
	ours := harness.Contenders{Name: "mutex", Turn: locks}
	harness.Contend(b, stats, clients*goroutines, floor, ours)
}
