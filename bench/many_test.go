package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// Many goroutines, a key each, beside the same crowd of pairs of empty scripts:
// each call a round trip of its own, and pipelined by go-redis itself. And beside the calls
// of Redis that a pair consists of, pipelined as well.
func BenchmarkManyKeys(b *testing.B) {
	for _, n := range []int{1, 4, 16, 64, 128, 256} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			srv := harness.Start(b)
			plain := srv.Client(harness.Pool(n))
			auto := srv.AutoPipeline()
			m, s := locks(b, srv.Client(harness.Pool(n))), permits(b, srv.Client(harness.Pool(n)), 10)
			floor, piped := harness.NoopPair(b, plain), harness.NoopPair(b, auto)
			calls := harness.NewCalls(b, auto, n)
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprint("key-", i)
			}
			harness.InterleaveCrowds(b, n, 50*time.Millisecond,
				harness.Crowd{Name: "floor", Pair: func(ctx context.Context, _ int) error { return floor(ctx) }},
				harness.Crowd{Name: "piped-floor", Pair: func(ctx context.Context, _ int) error { return piped(ctx) }},
				harness.Crowd{Name: "piped-calls", Pair: func(ctx context.Context, i int) error {
					if err := calls[i].Take(ctx, auto).Err(); err != nil {
						return err
					}
					return calls[i].Give(ctx, auto).Err()
				}},
				harness.Crowd{Name: "mutex", Pair: func(ctx context.Context, i int) error { return lockTurn(ctx, m, keys[i], nil) }},
				harness.Crowd{Name: "semaphore", Pair: func(ctx context.Context, i int) error { return permitTurn(ctx, s, keys[i], nil) }},
			)
		})
	}
}
