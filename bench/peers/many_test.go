package peers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// Many goroutines, each locks and unlocks a key of its own: each library as it comes, with a pool in which there
// is room for all; redislock also with a client that pipelines by itself, which it can be handed; and pairs of
// empty scripts on such a client.
func BenchmarkManyKeys(b *testing.B) {
	const backoff = 100 * time.Millisecond // never used: the keys are free
	for _, n := range []int{1, 4, 16, 64, 128, 256} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			srv := harness.Start(b)
			piped := harness.NoopPair(b, srv.AutoPipeline())
			crowds := []harness.Crowd{
				{Name: "piped-floor", Pair: func(ctx context.Context, _ int) error { return piped(ctx) }},
				crowd("mutex", n, openMutex(b, srv, srv.Client(harness.Pool(n)))),
				crowd("redislock", n, openRedislock(backoff)(b, srv, srv.Client(harness.Pool(n)))),
				crowd("redislock-piped", n, redislockOn(srv.AutoPipeline(), backoff)),
				crowd("redsync", n, openRedsync(b, srv, srv.Client(harness.Pool(n)))),
				crowd("rueidislock", n, openRueidislock(b, srv, nil)),
			}
			harness.InterleaveCrowds(b, n, 50*time.Millisecond, crowds...)
		})
	}
}

func crowd(name string, n int, take turn) harness.Crowd {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return harness.Crowd{Name: name, Pair: func(ctx context.Context, i int) error { return take(ctx, keys[i], forNothing) }}
}
