package bench

import (
	"context"
	"fmt"
	"slices"
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

// A hit beside a bare GET and decode of the same value: what the envelope, its checksum and the bookkeeping add.
func BenchmarkHit(b *testing.B) {
	harness.Hits(b, func(b *testing.B, rdb *redis.Client, v harness.User) []harness.Runner {
		g := cache[harness.User](b, rdb)
		load := func(context.Context) (harness.User, error) { return v, nil }
		return []harness.Runner{{Name: "hit", Pair: func() error { _, err := g.Do(context.Background(), "k", load); return err }}}
	})
}

// What a hit allocates.
func BenchmarkHitAllocs(b *testing.B) {
	ctx := context.Background()
	g := cache[[]byte](b, harness.Start(b).Client())
	load := func(context.Context) ([]byte, error) { return []byte("value"), nil }
	redistest.Must(g.Do(ctx, "k", load))(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Do(ctx, "k", load); err != nil {
			b.Fatal(err)
		}
	}
}

// A hit where go-redis caches on the client's side, beside a bare GET and decode
// of the same value by such a client, and a hit by a client that does not cache.
// The GETs that the caching client sends for a hit are counted on the server.
func BenchmarkHitClientSide(b *testing.B) {
	ctx := context.Background()
	srv := harness.StartOwn(b)
	stats := srv.Client()
	caching := srv.Client(func(o *redis.Options) {
		o.Protocol = 3
		o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{MaxEntries: 1000}
	})
	v := harness.Ada(20)
	load := func(context.Context) (harness.User, error) { return v, nil }
	near, far := cache[harness.User](b, caching), cache[harness.User](b, srv.Client())
	var hits, gets, fars float64
	hit := func() error { hits++; _, err := near.Do(ctx, "k", load); return err }
	for range 3 { // loaded, and then cached
		redistest.WantErr(b, hit())
	}
	bare := harness.BareHit(b, caching, v)
	redistest.WantErr(b, bare()) // cached, too
	_, before := harness.ServerMicros(b, stats, "get")
	hits = 0
	harness.Interleave(b,
		harness.Runner{Name: "floor", Pair: bare},
		harness.Runner{Name: "hit", Pair: hit},
		harness.Runner{Name: "GET-hit", Pair: func() error { fars++; _, err := far.Do(ctx, "k", load); return err }},
	)
	_, gets = harness.ServerMicros(b, stats, "get")
	b.ReportMetric((gets-before-fars)/hits, "GETs/hit")
}

// loadLease is the lease of a load: short, so that some fit into a run, and long
// enough that no pause of a busy machine lasts as long.
const loadLease = 600 * time.Millisecond

func init() { redistest.RegisterChild("bench-loader", loaderChild) }

// loaderChild is a process of four callers. It prints when each load begins, and
// "done" when all callers have the value.
func loaderChild(args []string) int {
	g := harness.Value(singleflight.New(harness.Dial(args[0]), singleflight.Config[string]{Name: "bench", TTL: time.Hour, LeaseTTL: loadLease}))
	fmt.Println("ready")
	return harness.Serve(func(words []string) {
		takes := harness.Value(strconv.Atoi(words[1]))
		load := func(context.Context) (string, error) {
			fmt.Println("load", harness.Now())
			time.Sleep(time.Duration(takes) * time.Millisecond)
			return "value", nil
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				v, err := g.Do(context.Background(), words[0], load)
				if err == nil && v != "value" {
					err = fmt.Errorf("got %q", v)
				}
				harness.Must(err)
			})
		}
		all.Wait()
		fmt.Println("done")
	})
}

// begun reads what a child prints until its callers are done: when its loads began.
func begun(b testing.TB, c *redistest.Child) (loads []int64) {
	b.Helper()
	for {
		line := redistest.Must(c.Line())(b)
		if line == "done" {
			return loads
		}
		loads = append(loads, redistest.Must(strconv.ParseInt(line[len("load "):], 10, 64))(b))
	}
}

func init() { harness.RegisterCallers(map[string]harness.Cache{"leasehold": harness.Singleflight}) }

// Eight processes of 200 goroutines each ask at the same moment for a value that nobody has. Its load takes
// 100 ms. See harness.Fleet for what is reported: how often it is loaded, and when the others have it. Beside it
// a PING in each process that wakes as many goroutines, for to wake 1,600 takes its time on a few cores.
func BenchmarkStampede(b *testing.B) {
	harness.NewFleet(b, harness.Start(b), 8, 200, 100*time.Millisecond, 0).Compare("leasehold", "ping")
}

// Four processes of four callers want a value. Its load takes three times as
// long as the lease of the right to load: loads for each value.
func BenchmarkLongLoad(b *testing.B) {
	harness.NewFleet(b, harness.Start(b), 4, 4, 3*loadLease, loadLease).Compare("leasehold")
}

// The process that loads is killed in its load, while two others wait: loads of each value that came after it,
// and the time from the kill to the beginning of the first of them, median and worst, beside the lease.
func BenchmarkKilledLoader(b *testing.B) {
	srv := harness.Start(b)
	waiters := harness.Children(b, 2, "bench-loader", srv.URL())
	state := cache[string](b, srv.Client())
	successors, values := 0, 0
	var took []time.Duration
	for b.Loop() {
		key := fmt.Sprint("killed-", harness.Now())
		loader := harness.Children(b, 1, "bench-loader", srv.URL())[0]
		loader.Send(key + " 60000")
		loader.Expect("load")
		for _, c := range waiters {
			c.Send(key + " 10")
		}
		redistest.Eventually(b, "all wait for the load", func() bool {
			return redistest.Must(state.Inspect(b.Context(), key))(b).Waiting == len(waiters)
		})
		killed := harness.Now() // by the time that Kill returns the process has been dead for a while
		loader.Kill()
		var loads []int64
		for _, c := range waiters {
			loads = append(loads, begun(b, c)...)
		}
		redistest.CheckNow(b, len(loads) != 0, "nobody has taken over")
		took = append(took, time.Duration(slices.Min(loads)-killed))
		successors += len(loads)
		values++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(successors)/float64(values), "successors")
	b.ReportMetric(harness.Micros(harness.Percentile(took, 50))/1000, "takeover-ms")
	b.ReportMetric(harness.Micros(harness.Percentile(took, 100))/1000, "takeover-worst-ms")
	b.ReportMetric(harness.Micros(loadLease)/1000, "lease-ms")
}

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
