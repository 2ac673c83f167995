package peers

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// See bench.BenchmarkContended. An op is too short for those that wait that long between two tries: -benchtime 20x and
// more tells something.
//
// redislock polls each 10 ms, ten times as often as in its documentation, since with that nearly all of the time
// nobody would hold the lock. "redsync-calls/turn" counts its tries, which are a SET and a script that undoes it.
func BenchmarkContended(b *testing.B) {
	srv := harness.Start(b)
	contend(b, srv, srv.Client(), harness.Local())
}

// contend lets crowds of all libraries want a key of srv, beside the crowd floor. stats is a client that counts.
func contend(b *testing.B, srv *harness.Server, stats *redis.Client, floor harness.Contenders) {
	b.Helper()
	const clients, goroutines = 4, 16
	all := []harness.Contenders{floor}
	for _, l := range libraries(10 * time.Millisecond) {
		key := l.name + "-contended"
		all = append(all, harness.Contenders{Name: l.name, Turn: harness.Spread(clients, func(int) func(context.Context, func()) error {
			take := l.open(b, srv, srv.Client(harness.Pool(goroutines)))
			redistest.Require(b, take(context.Background(), key, forNothing), nil, "%s: %v", l.name) // scripts loaded
			return func(ctx context.Context, hold func()) error { return take(ctx, key, hold) }
		})})
	}
	harness.Contend(b, stats, clients*goroutines, all...)
}
