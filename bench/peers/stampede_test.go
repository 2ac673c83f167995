package peers

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// See bench.BenchmarkStampede. An op is a cold key for each library. rockscache asks every 100 ms by default, so that
// a load of as much ends now before a question and now behind it: its p50 jumps, its last does not.
func BenchmarkStampede(b *testing.B) {
	harness.NewFleet(b, harness.Start(b), 8, 200, 100*time.Millisecond, 0).
		Compare("leasehold", "gorediscache", "rockscache", "rockscache-10ms", "ping")
}

// The same with a load of three times the lease: 4 processes of 20 callers each, a lease of 1 s, which is the
// shortest that rockscache takes, and a load of 3 s. go-redis/cache has no lease, and loads once in each process.
// What is reported is as with BenchmarkStampede.
func BenchmarkLongLoad(b *testing.B) {
	const lease = time.Second
	harness.NewFleet(b, harness.Start(b), 4, 20, 3*lease, lease).
		Compare("leasehold", "gorediscache", "rockscache")
}
