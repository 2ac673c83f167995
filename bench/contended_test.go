package bench

import (
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// One key, 64 goroutines of four clients, each holding it for 1 ms, beside the same loop on a local sync.Mutex:
// see harness.Contend. A benchmark's op is a tenth of a second of each.
func BenchmarkContended(b *testing.B) {
	srv := harness.Start(b)
	harness.Contend(b, srv.Client(), clients*goroutines, harness.Local(), contenders(b, "mutex", "k", srv))
}
