package peers

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// A key that is not cached, and 8 processes of 200 callers each who ask for it at the same moment; its load takes
// 100 ms. How often is it loaded in the whole fleet, and how long after the end of the first load do the others
// have the value? An op is a cold key for each library. rockscache asks every 100 ms by default, so that a load
// of as much ends now before a question and now behind it: its p50 jumps, its last does not.
//
// What any library needs for that is told beside: "ping-µs" is a round trip of
// each process's one PING at the same moment, and "ping-p50-ms" and so on the
// time from its sending until the other callers of its process have been told.
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
