package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// pairs are the competitors of a lone caller: two round trips that run an empty script, a lock, a permit.
func pairs(b *testing.B, ctx context.Context, rdb *redis.Client) []harness.Runner {
	b.Helper()
	m, s := locks(b, rdb), permits(b, rdb, 10)
	noop := harness.NoopPair(b, rdb)
	return []harness.Runner{
		{Name: "floor", Pair: func() error { return noop(ctx) }},
		{Name: "mutex", Pair: func() error { return lockTurn(ctx, m, "k", nil) }},
		{Name: "semaphore", Pair: func() error { return permitTurn(ctx, s, "k", nil) }},
	}
}

// A lone caller takes and gives back. Once under a ctx that cannot end, and once
// under one that can, for which a call runs on a goroutine of its own.
func BenchmarkLonePair(b *testing.B) {
	b.Run("background", func(b *testing.B) {
		harness.Interleave(b, pairs(b, context.Background(), harness.Start(b).Client())...)
	})
	b.Run("cancellable", func(b *testing.B) {
		harness.Interleave(b, pairs(b, b.Context(), harness.Start(b).Client())...)
	})
}

// What a pair allocates.
func BenchmarkLoneAllocs(b *testing.B) {
	m := locks(b, harness.Start(b).Client())
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l := redistest.Must(m.Lock(ctx, "k"))(b)
		redistest.WantErr(b, l.Unlock())
	}
}

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

// One key, 64 goroutines of four clients, each holding it for 1 ms, beside the same loop on a local sync.Mutex:
// see harness.Contend. A benchmark's op is a tenth of a second of each.
func BenchmarkContended(b *testing.B) {
	srv := harness.Start(b)
	harness.Contend(b, srv.Client(), clients*goroutines, harness.Local(), contenders(b, "mutex", "k", srv))
}
