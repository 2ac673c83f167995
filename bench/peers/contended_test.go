package peers

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// One key, 64 goroutines of four clients, each holding it for 1 ms, beside the
// same loop on a local sync.Mutex: see harness.Contend. An op is a tenth of a
// second of each, too short for those that wait that long between two tries:
// -benchtime 20x and more tells something.
//
// redislock polls each 10 ms, ten times as often as in its documentation, since
// with that nearly all of the time nobody would hold the lock. redsync's tries
// are a SET, and a script each that undoes it; "<who>-calls/turn" counts scripts,
// so its tries, and not its SETs. "<who>-late-ms" is how long after the end of
// their ctx the last of them came back. Who never had a turn is in
// "-fewest/most", and in no time.
func BenchmarkContended(b *testing.B) {
	srv := harness.Start(b)
	contend(b, srv, srv.Client(), harness.Local())
}

// contend lets crowds of all libraries want a key of srv, beside the crowd floor. stats
// is a client that counts.
func contend(b *testing.B, srv *harness.Server, stats *redis.Client, floor harness.Contenders) {
	b.Helper()
	const clients, goroutines = 4, 16
	all := []*contender{{name: floor.Name, turn: floor.Turn}}
	for _, l := range libraries(10 * time.Millisecond) {
		key := l.name + "-contended"
		all = append(all, &contender{name: l.name, turn: harness.Spread(clients, func(int) func(context.Context, func()) error {
			take := l.open(b, srv, srv.Client(harness.Pool(goroutines)))
			if err := take(context.Background(), key, nil); err != nil { // scripts loaded
				b.Fatalf("%s: %v", l.name, err)
			}
			return func(ctx context.Context, hold func()) error { return take(ctx, key, hold) }
		})})
	}

	crowds := make([]harness.Contenders, len(all))
	for i, c := range all {
		crowds[i] = harness.Contenders{Name: c.name, Turn: c.timed}
	}
	harness.Contend(b, stats, clients*goroutines, crowds...)
	for _, c := range all {
		b.ReportMetric(float64(c.late.Load())/1e6, c.name+"-late-ms")
	}
}

// contender watches how long after the end of its ctx a crowd's last turn ends.
type contender struct {
	name string
	turn func(ctx context.Context, goroutine int, hold func()) error
	late atomic.Int64 // ns
}

func (c *contender) timed(ctx context.Context, i int, hold func()) error {
	err := c.turn(ctx, i, hold)
	if end, ok := ctx.Deadline(); ok {
		late := time.Since(end).Nanoseconds()
		for old := c.late.Load(); late > old && !c.late.CompareAndSwap(old, late); old = c.late.Load() {
		}
	}
	return err
}
