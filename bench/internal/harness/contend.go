package harness

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Contenders are a crowd that wants one key: Turn takes it, holds it and gives it
// back.
type Contenders struct {
	Name string
	Turn func(ctx context.Context, goroutine int) error
}

// Spread spreads a crowd's goroutines over n clients, each made by open.
func Spread(n int, open func(client int) func(context.Context) error) func(context.Context, int) error {
	all := make([]func(context.Context) error, n)
	for i := range all {
		all[i] = open(i)
	}
	return func(ctx context.Context, i int) error { return all[i%n](ctx) }
}

// Contend lets each crowd of n goroutines contend, in turn and alone, for a tenth
// of a second for each op, and reports of each: turns a second, the fewest turns
// of a goroutine to the most, percentiles of the time from the call to the end of
// the turn, the longest of these to the mean, and script calls a turn.
func Contend(b *testing.B, stats *redis.Client, n int, all ...Contenders) {
	b.Helper()
	span := time.Duration(b.N) * 100 * time.Millisecond
	for _, c := range all {
		before := scripts(b, stats)
		counts, turns := contend(c, n, span)
		calls := scripts(b, stats) - before
		total := Sum(counts)
		b.ReportMetric(float64(total)/span.Seconds(), c.Name+"-turns/s")
		b.ReportMetric(float64(slices.Min(counts))/float64(max(1, slices.Max(counts))), c.Name+"-fewest/most")
		b.ReportMetric(calls/float64(max(1, total)), c.Name+"-calls/turn")
		for _, p := range Percentiles {
			b.ReportMetric(Micros(Percentile(turns, p.P))/1000, c.Name+"-"+p.Name+"-ms")
		}
		var sum time.Duration
		for _, d := range turns {
			sum += d
		}
		mean := sum / time.Duration(max(1, len(turns)))
		b.ReportMetric(float64(Percentile(turns, 100))/float64(mean), c.Name+"-longest/mean")
		slices.Sort(counts)
		for _, p := range Percentiles {
			b.ReportMetric(float64(counts[min(n-1, int(float64(n)*p.P/100))]), c.Name+"-turns-"+p.Name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// Percentiles are those that a distribution is told by.
var Percentiles = []struct {
	Name string
	P    float64
}{{"p0", 0}, {"p10", 10}, {"p25", 25}, {"p50", 50}, {"p75", 75}, {"p90", 90}, {"p99", 99}, {"p100", 100}}

// contend counts each goroutine's turns in span, and how long each took. What
// span cuts off does not count.
func contend(c Contenders, n int, span time.Duration) (counts []int, turns []time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	counts = make([]int, n)
	each := make([][]time.Duration, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if c.Turn(ctx, i) == nil {
					counts[i]++
					each[i] = append(each[i], time.Since(began))
				}
			}
		})
	}
	all.Wait()
	return counts, slices.Concat(each...)
}

// scripts is how many scripts the server has run.
func scripts(b testing.TB, stats *redis.Client) float64 {
	b.Helper()
	_, one := ServerMicros(b, stats, "evalsha")
	_, other := ServerMicros(b, stats, "eval")
	return one + other
}
