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

func nearCache[T any](b testing.TB, rdb redis.UniversalClient, lasts time.Duration, mod ...func(*singleflight.Config[T])) *singleflight.Group[T] {
	b.Helper()
	return cache(b, rdb, append(mod, func(c *singleflight.Config[T]) { c.NearFor = lasts })...)
}

// inMemory reads a key until it is served from memory.
func inMemory[T any](b testing.TB, g *singleflight.Group[T], key string, v T) {
	b.Helper()
	for {
		r := redistest.Must(g.Fetch(context.Background(), key, func(context.Context) (T, error) { return v, nil }))(b)
		if r.Source == singleflight.Near {
			return
		}
	}
}

// A hit in memory, by 1, 8 and 64 goroutines: ns/op is the wall time per hit of all of them
// together, and CPU-ns/op what a hit takes of a core, which others on the machine change less.
func BenchmarkNearHit(b *testing.B) {
	rdb := harness.Start(b).Client()
	text := nearCache(b, rdb, time.Minute, func(c *singleflight.Config[string]) { c.Name = "text" })
	users := nearCache(b, rdb, time.Minute, func(c *singleflight.Config[member]) { c.Name = "users" })
	for _, goroutines := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("string/%d", goroutines), func(b *testing.B) { hits(b, text, goroutines, "a value of some bytes") })
		b.Run(fmt.Sprintf("struct/%d", goroutines), func(b *testing.B) {
			hits(b, users, goroutines, member{7, "Ada Lovelace", "ada@example.org", true, 36.5, "London"})
		})
	}
}

type member struct {
	ID     int64
	Name   string
	Email  string
	Active bool
	Score  float64
	City   string
}

func hits[T any](b *testing.B, g *singleflight.Group[T], goroutines int, v T) {
	b.Helper()
	ctx := context.Background()
	load := func(context.Context) (T, error) { return v, nil }
	inMemory(b, g, "k", v)
	b.ReportAllocs()
	b.ResetTimer()
	cpu := harness.CPU(b)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range b.N / goroutines {
				if _, err := g.Do(ctx, "k", load); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64((harness.CPU(b)-cpu).Nanoseconds())/float64(b.N), "CPU-ns/op")
}

// An Invalidate of a key with copies in n handles, on the loopback and over a network with 1 ms each way.
func BenchmarkNearInvalidate(b *testing.B) {
	for _, trip := range []time.Duration{0, 2 * time.Millisecond} {
		for _, readers := range []int{0, 1, 8, 50} {
			b.Run(fmt.Sprintf("%v/%d", trip, readers), func(b *testing.B) {
				srv := harness.Start(b).Distant(b, trip)
				writer := nearCache[string](b, srv.Client(), time.Minute)
				var all []*singleflight.Group[string]
				for range readers {
					all = append(all, nearCache[string](b, srv.Client(), time.Minute))
				}
				var took []time.Duration
				b.ResetTimer()
				for range b.N {
					b.StopTimer()
					for _, g := range all {
						inMemory(b, g, "k", "v")
					}
					b.StartTimer()
					began := time.Now()
					harness.Must(writer.Invalidate(context.Background(), "k"))
					took = append(took, time.Since(began))
				}
				harness.Report(b, "", took)
			})
		}
	}
}

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
