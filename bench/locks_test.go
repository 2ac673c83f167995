package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// pairs are the competitors of a lone caller: two round trips that run an empty script, two that make the calls of
// Redis that a pair consists of, a lock, a permit.
func pairs(b *testing.B, ctx context.Context, rdb *redis.Client) []harness.Runner {
	b.Helper()
	m, s := locks(b, rdb), permits(b, rdb, 10)
	noop, calls := harness.NoopPair(b, rdb), harness.NewCalls(b, rdb, 1)
	return []harness.Runner{
		{Name: "floor", Pair: func() error { return noop(ctx) }},
		{Name: "calls", Pair: func() error { return calls[0].Pair(ctx, rdb) }},
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
				harness.Crowd{Name: "piped-calls", Pair: func(ctx context.Context, i int) error { return calls[i].Pair(ctx, auto) }},
				harness.Crowd{Name: "mutex", Pair: func(ctx context.Context, i int) error { return lockTurn(ctx, m, keys[i], nil) }},
				harness.Crowd{Name: "semaphore", Pair: func(ctx context.Context, i int) error { return permitTurn(ctx, s, keys[i], nil) }},
			)
		})
	}
}

// One key, 64 goroutines of four clients, each holding it for 1 ms, beside the same loop on a local sync.Mutex, without
// and with a PING between two holds: see harness.Contend. A benchmark's op is a tenth of a second of each.
func BenchmarkContended(b *testing.B) {
	srv := harness.Start(b)
	harness.Contend(b, srv.Client(), clients*goroutines, harness.Local(), harness.Pings(srv.Client()), contenders(b, "mutex", "k", srv))
}

// part names a key of Redis that belongs to one key of the benchmarks' family.
func part(b testing.TB, kind keys.Kind, key, part string) string {
	b.Helper()
	r := redistest.Must(keys.Family{Kind: kind, Name: "bench"}.Resource(key))(b)
	return r.Part(part)
}

func waiting(b testing.TB, rdb *redis.Client, kind keys.Kind, key string, n int) {
	b.Helper()
	queue := part(b, kind, key, "queue")
	for began := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		got := redistest.Must(rdb.ZCard(context.Background(), queue).Result())(b)
		if got == int64(n) {
			return
		}
		redistest.CheckNow(b, time.Since(began) <= 30*time.Second, "%d wait for %s; want %d", got, key, n)
	}
}

// publisher is the floor of a hand-over: a script that only tells.
var publisher = redis.NewScript("return redis.call('PUBLISH', ARGV[1], ARGV[2])")

// A lock handed over from one client to another that waits for it: from the call of Unlock to the return of the next
// owner's Lock. Beside it a script that publishes to a bare subscriber. An op is 25 rounds of each.
func BenchmarkHandover(b *testing.B) {
	srv := harness.Start(b)
	c := &crowd{b: b, stats: srv.Client(), size: 1, granted: make(chan turn, 2)}
	for range 2 {
		c.handles = append(c.handles, locks(b, srv.Client()))
	}
	c.wait(0)
	c.now = <-c.granted
	c.wait(1)
	c.queued(1)
	rdb := srv.Client()
	redistest.WantErr(b, publisher.Load(b.Context(), rdb).Err())
	publish := harness.Published(b, srv, func(ctx context.Context, channel, payload string) error {
		return publisher.EvalSha(ctx, rdb, nil, channel, payload).Err()
	})
	var handed, published []time.Duration
	round := func() {
		time.Sleep(time.Millisecond) // the waiter is asleep in its read before the clock starts, as the subscriber is
		handed = append(handed, c.handOver())
		published = append(published, publish())
	}
	for range 10 { // subscriptions made, scripts loaded, connections dialled
		round()
	}
	handed, published = nil, nil
	for b.Loop() {
		for range 25 {
			round()
		}
	}
	b.ReportMetric(0, "ns/op")
	harness.Report(b, "mutex", handed)
	harness.Report(b, "publish", published)
}
