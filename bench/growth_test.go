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
	"github.com/leasehold-go/leasehold/mutex"
)

// side is a server in some state, and what is timed there: one pair of calls.
type side struct {
	stats *redis.Client
	pair  func() time.Duration
}

// growth reports the time of a grown side's pair and the server's time of one of its scripts, medians both,
// beside those of the smallest ("base"): the two run by turns. A turn is 20 pairs, of which the server's time is
// the mean, so that what handles do in the background is in few of the turns.
func growth(b *testing.B, base, grown side) {
	b.Helper()
	const chunk = 20
	all := []struct {
		prefix string
		side
		pairs, server []time.Duration
	}{{prefix: "base-", side: base}, {side: grown}}
	turn := func(i int) {
		s := &all[i]
		micros, calls := harness.ServerMicros(b, s.stats, "evalsha")
		for range chunk {
			s.pairs = append(s.pairs, s.pair())
		}
		after, done := harness.ServerMicros(b, s.stats, "evalsha")
		s.server = append(s.server, time.Duration((after-micros)/(done-calls)*1000))
	}
	for i := range all { // connections dialled, scripts loaded
		turn(i)
		all[i].pairs, all[i].server = nil, nil
	}
	for b.Loop() {
		for i := range all {
			turn(i)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, s := range all {
		b.ReportMetric(harness.Micros(harness.Percentile(s.pairs, 50)), s.prefix+"pair-µs")
		b.ReportMetric(harness.Micros(harness.Percentile(s.server, 50)), s.prefix+"server-µs")
	}
}

// grows runs a benchmark for each size; those that take seconds to set up not where testing is short.
func grows(b *testing.B, what string, sizes []int, run func(b *testing.B, n int)) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("%s=%d", what, n), func(b *testing.B) {
			if n > 1000 && testing.Short() {
				b.Skip("takes long to set up")
			}
			run(b, n)
		})
	}
}

// growsFilled is grows for a side of its own of each size, of which fill also tells the bytes for each one of n.
func growsFilled(b *testing.B, what string, sizes []int, fill func(b *testing.B, n int) (_ side, server, heap float64)) {
	grows(b, what, sizes, func(b *testing.B, n int) {
		base, _, _ := fill(b, 1)
		grown, server, heap := fill(b, n)
		growth(b, base, grown)
		if n >= 1000 { // of fewer, what else there is outweighs them
			b.ReportMetric(server, "server-B")
			b.ReportMetric(heap, "Go-B")
		}
	})
}

// A permit is taken and given back where 10 to 100,000 are held, its own included, of the same key. The others
// are written as the library would, by handles that do nothing more. Both sides are keys of one server.
func BenchmarkGrowHolders(b *testing.B) {
	grows(b, "holders", []int{10, 100, 1000, 10_000, 100_000}, func(b *testing.B, n int) {
		const limit = 100_000 // the most there can be
		srv := harness.StartOwn(b)
		stats, s := srv.Client(), permits(b, srv.Client(), limit)
		pair := func(key string) func() time.Duration {
			return harness.Timed(b, func() error {
				l, err := s.TryAcquire(context.Background(), key)
				if err == nil {
					err = l.Release()
				}
				return err
			})
		}
		hold(b, stats, "base", 9, limit)
		hold(b, stats, "grown", n-1, limit)
		growth(b, side{stats, pair("base")}, side{stats, pair("grown")})
		b.ReportMetric(harness.KeyMemory(b, stats, part(b, keys.Semaphore, "grown", "holders"))/float64(n-1), "server-B")
	})
}

// hold writes n holders of key, of a handle each thousand, that expire one after the other from an hour hence.
func hold(b *testing.B, rdb *redis.Client, key string, n, limit int) {
	b.Helper()
	holders, first := part(b, keys.Semaphore, key, "holders"), time.Now().Add(time.Hour)
	pipe := rdb.Pipeline()
	for i := range n {
		member := fmt.Sprintf("handle%016d.%d.1.3600000.%d", i/1000, i%1000+1, limit)
		pipe.ZAdd(b.Context(), holders, redis.Z{Score: float64(first.UnixMilli() + int64(i)), Member: member})
		if i%1000 == 999 || i == n-1 {
			pipe.PExpireAt(b.Context(), holders, first.Add(time.Duration(i)*time.Millisecond))
			redistest.Must(pipe.Exec(b.Context()))(b)
		}
	}
	got, err := rdb.ZCard(b.Context(), holders).Result()
	redistest.CheckNow(b, err == nil && got == int64(n), "%d holders are there, %v; want %d", got, err, n)
}

// A lock of a free key is taken and given back by a handle that holds 1 to 100,000 others. "server-B" is all that
// the server keeps of a lock held, its fence included, "Go-B" what the handle keeps of it on the heap.
func BenchmarkGrowKeys(b *testing.B) {
	growsFilled(b, "keys", []int{1, 10, 100, 1000, 10_000, 100_000}, heldKeys)
}

func heldKeys(b *testing.B, n int) (_ side, server, heap float64) {
	b.Helper()
	ctx := context.Background()
	srv := harness.StartOwn(b)
	stats := srv.Client()
	// Too long to be renewed while the pairs are timed.
	m := locks(b, srv.Client(harness.Pool(filling)), func(c *mutex.Config) { c.TTL = 10 * time.Minute })
	pair := func(key string) error { return lockTurn(ctx, m, key, nil) }
	fill(b, 4*filling, func(i int) error { return pair(fmt.Sprint("warm-", i)) })
	server, heap = harness.ServerMemory(b, stats), harness.Heap()
	fill(b, n, func(i int) error { _, err := m.Lock(ctx, fmt.Sprint("key-", i)); return err })
	server, heap = harness.ServerMemory(b, stats)-server, harness.Heap()-heap
	return side{stats, harness.Timed(b, func() error { return pair("pair") })}, server / float64(n), heap / float64(n)
}
