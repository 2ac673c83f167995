package harness

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Contenders are a crowd that wants one key: Turn takes it, calls hold and gives it back.
type Contenders struct {
	Name    string
	Turn    func(ctx context.Context, goroutine int, hold func()) error
	Clients int           // the crowd is spread over so many, as Spread does it; 0: that is not told
	Hold    time.Duration // of each; 0 = Hold
}

// Hold is how long each holds it: what time.Sleep makes of that. Go rounds sleeps
// up to whole milliseconds again whenever something comes from the network, so
// that the same Sleep takes longer beside a client than beside a local mutex.
const Hold = time.Millisecond

// Spread spreads a crowd's goroutines over n clients, each made by open.
func Spread(n int, open func(client int) func(ctx context.Context, hold func()) error) func(context.Context, int, func()) error {
	all := make([]func(context.Context, func()) error, n)
	for i := range all {
		all[i] = open(i)
	}
	return func(ctx context.Context, i int, hold func()) error { return all[i%n](ctx, hold) }
}

// Local is the floor of contention: a mutex of this process.
func Local() Contenders { return floor("local", func() error { return nil }) }

// Pings is the floor of contention over a network, which is physics: between two holders, by a
// mutex of this process, one bare round trip must pass.
func Pings(rdb *redis.Client) Contenders {
	return floor("floor", func() error { return rdb.Ping(context.Background()).Err() })
}

func floor(name string, between func() error) Contenders {
	var mu sync.Mutex
	return Contenders{Name: name, Turn: func(ctx context.Context, _ int, hold func()) error {
		mu.Lock()
		defer mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err // else each that still waits would have a turn after the end
		}
		hold()
		return between()
	}}
}

// Contend lets each crowd of n goroutines contend, in turn and alone, for a tenth of a second for each op, and
// reports of each: turns a second, the fewest turns of a goroutine to the most, percentiles of the time from the
// call to the end of the turn, the longest of these to the mean, script calls a turn while the whole crowd
// contends, how long it was held, what was between two holds ("-handover-µs"), both on the average, and by how
// many at a time ("-held").
func Contend(b *testing.B, stats *redis.Client, n int, all ...Contenders) {
	b.Helper()
	ContendFor(b, time.Duration(b.N)*100*time.Millisecond, stats, n, all...)
}

// ContendFor is Contend, for span each.
func ContendFor(b *testing.B, span time.Duration, stats *redis.Client, n int, all ...Contenders) {
	b.Helper()
	for _, c := range all {
		counts, turns, holds, calls, span := contend(c, n, span, func() float64 { return Scripts(b, stats) })
		total := Sum(counts)
		b.ReportMetric(float64(total)/span.Seconds(), c.Name+"-turns/s")
		b.ReportMetric(float64(slices.Min(counts))/float64(max(1, slices.Max(counts))), c.Name+"-fewest/most")
		if c.Clients > 0 {
			each := make([]int, c.Clients)
			for i, turns := range counts {
				each[i%c.Clients] += turns
			}
			b.ReportMetric(float64(slices.Min(each))/float64(max(1, slices.Max(each))), c.Name+"-fewest/most-client")
		}
		b.ReportMetric(calls, c.Name+"-calls/turn")
		held := mean(holds)
		b.ReportMetric(Micros(held)/1000, c.Name+"-hold-ms")
		b.ReportMetric(held.Seconds()*float64(total)/span.Seconds(), c.Name+"-held")
		b.ReportMetric(Micros(span/time.Duration(max(1, total))-held), c.Name+"-handover-µs")
		for _, p := range []int{0, 10, 25, 50, 75, 90, 99, 100} {
			b.ReportMetric(Micros(Percentile(turns, float64(p)))/1000, fmt.Sprintf("%s-p%d-ms", c.Name, p))
		}
		b.ReportMetric(float64(Percentile(turns, 100))/float64(mean(turns)), c.Name+"-longest/mean")
	}
	b.ReportMetric(0, "ns/op")
}

func mean(all []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(max(1, len(all)))
}

// contend counts each goroutine's turns in span, and how long each took and was held. What span's end cuts off
// does not count. scripts tells how many scripts have run: calls is how many a turn takes, and what the crowd
// calls before each of it waits, or because it is cut off, is not among them. took is how long span was.
func contend(c Contenders, n int, span time.Duration, scripts func() float64) (counts []int, turns, holds []time.Duration, calls float64, took time.Duration) {
	// The deadline is that of a request, and never comes: the span ends by cancel.
	ctx, cancel := context.WithTimeout(context.Background(), span+time.Hour)
	defer cancel()
	var taken atomic.Int64
	start := time.Now()
	counts = make([]int, n)
	each, held := make([][]time.Duration, n), make([][]time.Duration, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			hold := func() {
				began := time.Now()
				time.Sleep(cmp.Or(c.Hold, Hold))
				held[i] = append(held[i], time.Since(began))
			}
			for ctx.Err() == nil {
				began := time.Now()
				if c.Turn(ctx, i, hold) == nil && ctx.Err() == nil {
					counts[i]++
					taken.Add(1)
					each[i] = append(each[i], time.Since(began))
				}
			}
		})
	}
	for taken.Load() < int64(n) && time.Since(start) < span/2 {
		time.Sleep(time.Millisecond)
	}
	before, from := scripts(), taken.Load()
	time.Sleep(time.Until(start.Add(span)))
	calls = (scripts() - before) / float64(max(1, taken.Load()-from))
	cancel()
	took = time.Since(start)
	all.Wait()
	return counts, slices.Concat(each...), slices.Concat(held...), calls, took
}

func Scripts(b testing.TB, stats *redis.Client) float64 {
	b.Helper()
	_, one := ServerMicros(b, stats, "evalsha")
	_, other := ServerMicros(b, stats, "eval")
	return one + other
}
