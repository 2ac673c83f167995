package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// pairs are the competitors of a lone caller: two round trips that run an empty
// script, a lock, a permit.
func pairs(b *testing.B, ctx context.Context, rdb *redis.Client) []runner {
	b.Helper()
	m, s := locks(b, rdb), permits(b, rdb, 10)
	if err := noop.Load(ctx, rdb).Err(); err != nil {
		b.Fatal(err)
	}
	all := []runner{
		{"floor", func() error {
			for range 2 {
				if err := rdb.EvalSha(ctx, noop.Hash(), []string{"k"}).Err(); err != nil {
					return err
				}
			}
			return nil
		}},
		{"mutex", func() error {
			l, err := m.Lock(ctx, "k")
			if err != nil {
				return err
			}
			return l.Unlock()
		}},
		{"semaphore", func() error {
			l, err := s.Acquire(ctx, "k")
			if err != nil {
				return err
			}
			return l.Release()
		}},
	}
	for _, r := range all { // scripts loaded, clock mapped
		if err := r.pair(); err != nil {
			b.Fatal(err)
		}
	}
	return all
}

// A lone caller takes and gives back. Once under a ctx that cannot end, and once
// under one that can, for which a call runs on a goroutine of its own.
func BenchmarkLonePair(b *testing.B) {
	b.Run("background", func(b *testing.B) {
		interleave(b, pairs(b, context.Background(), server(b).Client()))
	})
	b.Run("cancellable", func(b *testing.B) {
		interleave(b, pairs(b, b.Context(), server(b).Client()))
	})
}

// What a pair costs the server, by its own account: the time of EVALSHA, which
// bounds the fleet's rate.
func BenchmarkServerTime(b *testing.B) {
	const chunk = 50
	rdb := server(b).Client()
	all := pairs(b, context.Background(), rdb)
	spent, rounds := make([]float64, len(all)), 0.0
	for b.Loop() {
		rounds++
		for i, r := range all {
			before := scriptMicros(b, rdb)
			for range chunk {
				if err := r.pair(); err != nil {
					b.Fatal(err)
				}
			}
			spent[i] += scriptMicros(b, rdb) - before
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, r := range all {
		b.ReportMetric(spent[i]/rounds/chunk, r.name+"-server-µs")
	}
}

// scriptMicros is how long the server has spent in scripts.
func scriptMicros(b *testing.B, rdb *redis.Client) float64 {
	b.Helper()
	stats := rdb.InfoMap(b.Context(), "commandstats").Item("Commandstats", "cmdstat_evalsha")
	var calls, micros float64
	if _, err := fmt.Sscanf(stats, "calls=%f,usec=%f", &calls, &micros); err != nil {
		b.Fatalf("%q: %v", stats, err)
	}
	return micros
}
