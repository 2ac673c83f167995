package bench

import (
	"context"
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// One key, 64 goroutines of four clients, each holding it for 1 ms, beside the same loop on a local sync.Mutex:
// see harness.Contend. A benchmark's op is a tenth of a second of each.
func BenchmarkContended(b *testing.B) {
	const clients, goroutines = 4, 16
	srv := harness.Start(b)
	turn := harness.Spread(clients, func(int) func(context.Context, func()) error {
		m := locks(b, srv.Client())
		return func(ctx context.Context, hold func()) error { return lockTurn(ctx, m, "k", hold) }
	})
	harness.Contend(b, srv.Client(), clients*goroutines, harness.Local(), harness.Contenders{Name: "mutex", Turn: turn})
}
