package bench

import (
	"context"
	"fmt"
	"sync"
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
