package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
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

// What a network costs by its round trip: a lone pair, 128 goroutines with a key each, the
// turns of a contended lock, and 2,000 held leases. The floors make as many round trips.
func BenchmarkTrips(b *testing.B) {
	for _, trip := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		b.Run(fmt.Sprintf("roundtrip=%v", trip), func(b *testing.B) {
			srv := harness.StartOwn(b)
			far := srv.Distant(b, trip)
			b.Run("lone", func(b *testing.B) {
				harness.Interleave(b, pairs(b, context.Background(), far.Client())[:2]...)
			})
			b.Run("many", func(b *testing.B) { manyPairs(b, far, trip) })
			b.Run("contended", func(b *testing.B) { contendedTurns(b, srv, far, trip) })
			b.Run("held", func(b *testing.B) { harness.Once(b, func() { heldOver(b, far) }) })
		})
	}
}

// manyPairs is 128 goroutines with a key each, beside as many that each make two round trips.
func manyPairs(b *testing.B, far *harness.Server, trip time.Duration) {
	const n = 128
	noop, m := harness.NoopPair(b, far.Client(harness.Pool(n))), locks(b, far.Client(harness.Pool(n)))
	harness.InterleaveCrowds(b, n, max(50*time.Millisecond, 10*trip),
		harness.Crowd{Name: "floor", Pair: func(ctx context.Context, _ int) error { return noop(ctx) }},
		harness.Crowd{Name: "mutex", Pair: func(ctx context.Context, i int) error { return lockTurn(ctx, m, fmt.Sprint("key-", i), nil) }})
}

// contendedTurns is one key that 64 goroutines of four clients want for 1 ms. The floor is a
// local sync.Mutex and a PING between two holds. 25 turns at least are counted.
func contendedTurns(b *testing.B, near, far *harness.Server, trip time.Duration) {
	harness.ContendFor(b, max(time.Duration(b.N)*100*time.Millisecond, 25*trip), near.Client(), clients*goroutines,
		harness.Pings(far.Client()), contenders(b, "mutex", "contended", far))
}

// heldOver holds 2,000 locks for two of their TTLs of 3 s and gives them back at once. "lost"
// counts those of them that were lost, "renewals/trip" the renewals that a round trip carried.
func heldOver(b *testing.B, far *harness.Server) {
	const n, ttl = 2000, 3 * time.Second
	rdb := far.Client()
	counts := countTrips(rdb)
	m := locks(b, rdb, func(c *mutex.Config) { c.TTL = ttl })
	held, lost := make([]*mutex.Lock, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if held[i], lost[i] = m.Lock(context.Background(), fmt.Sprint("held-", i)); lost[i] != nil {
				b.Error(lost[i])
			}
		})
	}
	if all.Wait(); b.Failed() {
		return
	}
	time.Sleep(2 * ttl)
	b.ReportMetric(float64(counts.renewals.Load())/float64(max(1, counts.trips.Load())), "renewals/trip")
	for i := range n {
		all.Go(func() { lost[i] = held[i].Unlock() })
	}
	all.Wait()
	gone := 0
	for _, err := range lost {
		if errors.Is(err, leasehold.ErrLost) {
			gone++
		} else if err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(gone), "lost")
}
