package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// roundTrips are the networks of the benchmarks below: none, one of a data centre, one between
// regions, and one between continents.
var roundTrips = []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}

// over runs f over each network.
func over(b *testing.B, f func(b *testing.B, far *harness.Server, roundTrip time.Duration)) {
	for _, d := range roundTrips {
		b.Run(fmt.Sprint("rtt=", d), func(b *testing.B) { f(b, harness.StartOwn(b).Distant(b, d), d) })
	}
}

// A lone caller, beside two bare calls: see BenchmarkLonePair.
func BenchmarkRoundTripsLonePair(b *testing.B) {
	over(b, func(b *testing.B, far *harness.Server, _ time.Duration) {
		harness.Interleave(b, pairs(b, context.Background(), far.Client())...)
	})
}

// 128 goroutines with a key each, beside as many bare calls that go-redis pipelines: see
// BenchmarkManyKeys.
func BenchmarkRoundTripsManyKeys(b *testing.B) {
	over(b, func(b *testing.B, far *harness.Server, roundTrip time.Duration) {
		const n = 128
		auto, err := far.Client().AutoPipeline()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = auto.Close() })
		piped, m := harness.NoopPair(b, auto), locks(b, far.Client())
		harness.InterleaveCrowds(b, n, 50*time.Millisecond+4*roundTrip,
			harness.Crowd{Name: "piped-floor", Pair: func(ctx context.Context, _ int) error { return piped(ctx) }},
			harness.Crowd{Name: "mutex", Pair: func(ctx context.Context, i int) error {
				l, err := m.Lock(ctx, fmt.Sprint("key-", i))
				if err != nil {
					return err
				}
				return l.Unlock()
			}},
		)
	})
}

// Turns on one key that 16 goroutines of four clients want and give back at once. The floor is
// one turn for each round trip, measured by PING in the same moments.
func BenchmarkRoundTripsContended(b *testing.B) {
	over(b, func(b *testing.B, far *harness.Server, roundTrip time.Duration) {
		const clients, each = 4, 4
		var all []*mutex.Mutex
		for range clients {
			all = append(all, locks(b, far.Client()))
		}
		rdb := far.Client()
		turns, pings := 0, 0
		var held, pinged time.Duration
		for b.Loop() {
			began := time.Now()
			for range 10 {
				if err := rdb.Ping(context.Background()).Err(); err != nil {
					b.Fatal(err)
				}
			}
			pings, pinged = pings+10, pinged+time.Since(began)
			n, took := turnsOf(b, all, each, 200*time.Millisecond+20*roundTrip)
			turns, held = turns+n, held+took
		}
		perTurn, perPing := held/time.Duration(max(1, turns)), pinged/time.Duration(pings)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(harness.Micros(perTurn), "turn-µs")
		b.ReportMetric(harness.Micros(perPing), "floor-µs")
		b.ReportMetric(float64(perPing)/float64(perTurn), "of-floor")
	})
}

// turnsOf counts the turns that goroutines of handles take on one key within span, from the
// second one on.
func turnsOf(b *testing.B, handles []*mutex.Mutex, each int, span time.Duration) (turns int, took time.Duration) {
	b.Helper()
	var mu sync.Mutex
	var first, last time.Time
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range handles {
		for range each {
			all.Go(func() {
				for ctx.Err() == nil {
					l, err := m.Lock(ctx, "contended")
					if err != nil {
						return
					}
					mu.Lock()
					if last = time.Now(); first.IsZero() {
						first = last
					} else {
						turns++
					}
					mu.Unlock()
					if err := l.Unlock(); err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	return turns, last.Sub(first)
}

// 2,000 leases with a TTL of 3 s, or of 12 round trips if that is more, held for two TTLs and
// given back at once: how many were lost, and how long taking and giving back took.
func BenchmarkRoundTripsHeldLeases(b *testing.B) {
	over(b, func(b *testing.B, far *harness.Server, roundTrip time.Duration) {
		const n = 2000
		ttl := max(3*time.Second, 12*roundTrip)
		m, err := mutex.New(far.Client(func(o *redis.Options) { o.PoolSize = 20 }), mutex.Config{Name: "held", TTL: ttl})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = m.Close(context.Background()) })
		lost := 0
		var take, give time.Duration
		for b.Loop() {
			held := make([]*mutex.Lock, n)
			began := time.Now()
			atOnce(n, func(i int) {
				l, err := m.Lock(context.Background(), fmt.Sprint("k", i))
				if err != nil {
					b.Error(err)
				}
				held[i] = l
			})
			take += time.Since(began)
			time.Sleep(2 * ttl)
			for _, l := range held {
				if l == nil || l.Context().Err() != nil {
					lost++
				}
			}
			began = time.Now()
			atOnce(n, func(i int) {
				if held[i] != nil {
					_ = held[i].Unlock()
				}
			})
			give += time.Since(began)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(lost)/float64(b.N), "lost")
		b.ReportMetric(take.Seconds()*1000/float64(b.N), "take-ms")
		b.ReportMetric(give.Seconds()*1000/float64(b.N), "give-ms")
	})
}

// atOnce calls f for 0 to n-1, all at once.
func atOnce(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
