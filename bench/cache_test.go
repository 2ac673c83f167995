package bench

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A hit beside a bare GET and decode of the same value: what the envelope, its checksum and the bookkeeping add.
func BenchmarkHit(b *testing.B) {
	harness.Hits(b, func(b *testing.B, rdb *redis.Client, v harness.User) []harness.Runner {
		g := cache[harness.User](b, rdb)
		load := func(context.Context) (harness.User, error) { return v, nil }
		return []harness.Runner{{Name: "hit", Pair: func() error { _, err := g.Do(context.Background(), "k", load); return err }}}
	})
}

// What a hit allocates.
func BenchmarkHitAllocs(b *testing.B) {
	ctx := context.Background()
	g := cache[[]byte](b, harness.Start(b).Client())
	load := func(context.Context) ([]byte, error) { return []byte("value"), nil }
	redistest.Must(g.Do(ctx, "k", load))(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Do(ctx, "k", load); err != nil {
			b.Fatal(err)
		}
	}
}
