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

// A hit where go-redis caches on the client's side, beside a bare GET and decode
// of the same value by such a client, and a hit by a client that does not cache.
// The GETs that the caching client sends for a hit are counted on the server.
func BenchmarkHitClientSide(b *testing.B) {
	ctx := context.Background()
	srv := harness.StartOwn(b)
	stats := srv.Client()
	caching := srv.Client(func(o *redis.Options) {
		o.Protocol = 3
		o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{MaxEntries: 1000}
	})
	v := harness.Ada(20)
	load := func(context.Context) (harness.User, error) { return v, nil }
	near, far := cache[harness.User](b, caching), cache[harness.User](b, srv.Client())
	var hits, gets, fars float64
	hit := func() error { hits++; _, err := near.Do(ctx, "k", load); return err }
	for range 3 { // loaded, and then cached
		redistest.WantErr(b, hit())
	}
	bare := harness.BareHit(b, caching, v)
	redistest.WantErr(b, bare()) // cached, too
	_, before := harness.ServerMicros(b, stats, "get")
	hits = 0
	harness.Interleave(b,
		harness.Runner{Name: "floor", Pair: bare},
		harness.Runner{Name: "hit", Pair: hit},
		harness.Runner{Name: "GET-hit", Pair: func() error { fars++; _, err := far.Do(ctx, "k", load); return err }},
	)
	_, gets = harness.ServerMicros(b, stats, "get")
	b.ReportMetric((gets-before-fars)/hits, "GETs/hit")
}
