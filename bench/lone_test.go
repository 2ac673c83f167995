package bench

import (
	"context"
	"testing"

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
