package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// What a pair costs the server, by its own account and under load: the time of
// EVALSHA, which bounds the fleet's rate.
func BenchmarkServerTime(b *testing.B) {
	const n = 64
	srv := harness.StartOwn(b)
	stats := srv.Client()
	auto, err := srv.Client().AutoPipeline()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = auto.Close() })
	noop := harness.NoopPair(b, auto)
	m, s := locks(b, srv.Client(harness.Pool(n))), permits(b, srv.Client(harness.Pool(n)), 10)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	all := []harness.Crowd{
		{Name: "noop", Pair: func(ctx context.Context, _ int) error { return noop(ctx) }},
		{Name: "mutex", Pair: func(ctx context.Context, i int) error {
			l, err := m.Lock(ctx, keys[i])
			if err != nil {
				return err
			}
			return l.Unlock()
		}},
		{Name: "semaphore", Pair: func(ctx context.Context, i int) error {
			l, err := s.Acquire(ctx, keys[i])
			if err != nil {
				return err
			}
			return l.Release()
		}},
	}
	spent, calls := make([]float64, len(all)), make([]float64, len(all))
	for b.Loop() {
		for i, c := range all {
			micros, before := harness.ServerMicros(b, stats, "evalsha")
			harness.Run(b, c, n, 50*time.Millisecond)
			now, after := harness.ServerMicros(b, stats, "evalsha")
			spent[i] += now - micros
			calls[i] += after - before
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, c := range all {
		b.ReportMetric(2*spent[i]/calls[i], c.Name+"-server-µs")
	}
}
