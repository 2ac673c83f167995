package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

func init() { redistest.RegisterChild("bench-near", nearChild) }

// nearChild reads one key by 16 goroutines for as long as each line of its input says, with a
// pause between two reads.
func nearChild(args []string) int {
	lasts := harness.Value(time.ParseDuration(args[1]))
	g := harness.Value(singleflight.New(harness.Dial(args[0]), singleflight.Config[string]{Name: "bench", TTL: time.Hour, NearFor: lasts}))
	fmt.Println("ready")
	return harness.Serve(func(words []string) {
		length, pause := harness.Value(time.ParseDuration(words[0])), harness.Value(time.ParseDuration(words[1]))
		var reads atomic.Int64
		var all sync.WaitGroup
		end := time.Now().Add(length)
		for range 16 {
			all.Go(func() {
				ctx := context.Background()
				for n := int64(0); ; n++ {
					if (pause > 0 || n%64 == 0) && time.Now().After(end) {
						reads.Add(n)
						return
					}
					_, err := g.Do(ctx, "k", func(context.Context) (string, error) { return "value", nil })
					harness.Must(err)
					if pause > 0 {
						time.Sleep(pause)
					}
				}
			})
		}
		all.Wait()
		fmt.Println("read", reads.Load())
	})
}

// One hot key that 8 processes of 16 goroutines read: as fast as they can, and each goroutine
// every 10 ms. "cmds/s" is what they then send in a second.
func BenchmarkNearFleet(b *testing.B) {
	for _, lasts := range []time.Duration{0, time.Second} {
		b.Run(fmt.Sprintf("NearFor=%v", lasts), func(b *testing.B) {
			srv := harness.StartOwn(b)
			stats := srv.Client()
			all := harness.Children(b, 8, "bench-near", srv.URL(), lasts.String())
			run := func(length, pause time.Duration) (reads float64) {
				for _, c := range all {
					c.Send(fmt.Sprintf("%v %v", length, pause))
				}
				for _, c := range all {
					reads += redistest.Must(strconv.ParseFloat(c.Expect("read "), 64))(b)
				}
				return reads
			}
			run(time.Second, time.Millisecond)
			const long = 4 * time.Second
			for b.Loop() {
				b.ReportMetric(run(long, 0)/long.Seconds(), "reads/s")
				before := commands(b, stats, "get")
				n := run(long, 10*time.Millisecond)
				b.ReportMetric((commands(b, stats, "get")-before)/long.Seconds(), "cmds/s")
				b.ReportMetric(n/long.Seconds(), "paced-reads/s")
			}
		})
	}
}

// commands is how many commands clients have sent, and how many of some others ran. A near read
// whose value is known calls no GET; the scripts of locks call some.
func commands(b *testing.B, stats redis.UniversalClient, others ...string) (n float64) {
	b.Helper()
	calls := redistest.Commandstats(b, stats)
	for _, name := range append(others, "evalsha", "eval", "ping", "subscribe", "unsubscribe") {
		n += float64(calls[name])
	}
	return n
}
