// Package harness is what the benchmarks share: a server, competitors that take turns, and how their times are
// told. Every figure is reported as a metric of a standard benchmark line, "<who>-<unit>", so that a report needs
// no other interface than the output of go test -bench.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Server is where a benchmark runs: the server that REDIS_URL names, or one of
// its own, of the oldest version installed.
type Server struct {
	b       testing.TB
	options redis.Options
	url     string // of the server, or of the network before it
}

// Start starts a server for b, which ends with it.
func Start(b testing.TB) *Server {
	b.Helper()
	if url := os.Getenv("REDIS_URL"); url != "" {
		o, err := redis.ParseURL(url)
		redistest.CheckNow(b, err == nil, "REDIS_URL: %v", err)
		return &Server{b: b, options: *o, url: url}
	}
	return StartOwn(b)
}

// StartOwn is Start for what must not run on anybody else's server: it fills
// memory, or reads the server's own figures.
func StartOwn(b testing.TB) *Server {
	b.Helper()
	if _, ok := b.(*testing.B); ok {
		redistest.UseServers() // somebody asked for benchmarks
	}
	redistest.NeedServers(b)
	addr := redistest.StartServer(b, redistest.Installed()[0]).Addr()
	return &Server{b: b, options: redis.Options{Addr: addr}, url: "redis://" + addr + "/0"}
}

// URL names the server to other processes.
func (s *Server) URL() string { return s.url }

// Client makes a client of its own pool, closed with the benchmark.
func (s *Server) Client(mod ...func(*redis.Options)) *redis.Client {
	o := s.options
	for _, m := range mod {
		m(&o)
	}
	rdb := redis.NewClient(&o)
	s.b.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// AutoPipeline makes a client that gathers the commands of all goroutines in pipelines, with
// go-redis's defaults for callers that wait.
func (s *Server) AutoPipeline() *redis.AutoPipeliner {
	auto := redistest.Must(s.Client().AutoPipeline())(s.b)
	s.b.Cleanup(func() { _ = auto.Close() })
	return auto
}

// Pool makes room for n callers at once: pools, not libraries, would be measured otherwise.
func Pool(n int) func(*redis.Options) {
	return func(o *redis.Options) { o.PoolSize = n }
}

// Noop is the floor's script: what any call of a script costs.
var Noop = redis.NewScript("return 1")

// NoopPair is two bare calls of a script that does nothing: the floor of taking and giving back.
func NoopPair(b testing.TB, rdb redis.UniversalClient) func(context.Context) error {
	b.Helper()
	noop := Noops(b, rdb, 1)
	return func(ctx context.Context) error { return errors.Join(noop.Pair(ctx, 0), noop.Pair(ctx, 0)) }
}

// Measured is one competitor: Once measures it.
type Measured struct {
	Name string
	Once func() time.Duration
}

// Turns lets the competitors take turns, b.N times, and returns what was measured of each.
func Turns(b *testing.B, all ...Measured) [][]time.Duration {
	b.Helper()
	times := make([][]time.Duration, len(all))
	for b.Loop() {
		for i, m := range all {
			times[i] = append(times[i], m.Once())
		}
	}
	b.ReportMetric(0, "ns/op") // of the whole round: means nothing
	return times
}

// Medians is Turns, and reports the median of each as "<name><unit>".
func Medians(b *testing.B, unit string, all ...Measured) {
	b.Helper()
	for i, times := range Turns(b, all...) {
		b.ReportMetric(Micros(Percentile(times, 50)), all[i].Name+unit)
	}
}

// Runner is one competitor: Pair is what is timed, mostly taking and giving back.
type Runner struct {
	Name string
	Pair func() error
}

// Interleave lets the competitors take turns of ten pairs, b.N times, and
// reports the median time of a pair of each as "<name>-µs".
func Interleave(b *testing.B, all ...Runner) {
	b.Helper()
	const chunk = 10
	var measured []Measured
	for _, r := range all {
		redistest.Require(b, r.Pair(), nil, "%s: %v", r.Name) // scripts loaded, connections dialled
		measured = append(measured, Measured{r.Name, func() time.Duration {
			began := time.Now()
			for range chunk {
				redistest.Require(b, r.Pair(), nil, "%s: %v", r.Name)
			}
			return time.Since(began) / chunk
		}})
	}
	Medians(b, "-µs", measured...)
}

// Crowd is one competitor of many goroutines: Pair is called by n of them.
type Crowd struct {
	Name string
	Pair func(ctx context.Context, goroutine int) error
}

// InterleaveCrowds lets crowds of n goroutines run in turn, span each and b.N times, and reports the median time
// that a pair takes the crowd (span divided by the pairs of all goroutines) as "<name>-µs".
func InterleaveCrowds(b *testing.B, n int, span time.Duration, all ...Crowd) {
	b.Helper()
	var measured []Measured
	for _, c := range all {
		Run(b, c, n, span/4)
		measured = append(measured, Measured{c.Name, func() time.Duration {
			// Nobody pays for what the one before left: garbage, and goroutines that are about to end.
			runtime.GC()
			time.Sleep(5 * time.Millisecond)
			pairs, took := Run(b, c, n, span)
			return took / time.Duration(max(1, pairs))
		}})
	}
	Medians(b, "-µs", measured...)
}

// Run lets n goroutines call c's Pair for span, and says how often that was and
// how long it took until the last had ended.
func Run(b testing.TB, c Crowd, n int, span time.Duration) (pairs int, took time.Duration) {
	b.Helper()
	counts := make([]int, n)
	began := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for time.Since(began) < span {
				if err := c.Pair(context.Background(), i); err != nil {
					b.Errorf("%s: %v", c.Name, err)
					return
				}
				counts[i]++
			}
		})
	}
	all.Wait()
	took = time.Since(began)
	if b.Failed() {
		b.FailNow()
	}
	return Sum(counts), took
}

// ServerMicros is how long the server has spent in commands of that name, and how
// often it ran them, by its own account.
func ServerMicros(b testing.TB, rdb redis.UniversalClient, command string) (micros, calls float64) {
	b.Helper()
	stats := redistest.Must(rdb.Info(context.Background(), "commandstats").Result())(b)
	if _, figures, ran := strings.Cut(stats, "\ncmdstat_"+command+":"); ran {
		_, err := fmt.Sscanf(figures, "calls=%f,usec=%f", &calls, &micros)
		redistest.WantErr(b, err)
	}
	return micros, calls
}

// Percentile is the p-th percentile (0 to 100) of all, which it sorts.
func Percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(float64(len(all))*p/100))]
}

// Report reports the median of times, and what 99 % of them are not above, as "<name>-p50-µs"
// and "<name>-p99-µs"; "p50-µs" and so on without a name.
func Report(b *testing.B, name string, times []time.Duration) {
	if name != "" {
		name += "-"
	}
	b.ReportMetric(Micros(Percentile(times, 50)), name+"p50-µs")
	b.ReportMetric(Micros(Percentile(times, 99)), name+"p99-µs")
}

// Published is the floor of a hand-over: from the call of publish to the moment at which a bare subscriber has the
// message, which is as long as one of leasehold's.
func Published(b *testing.B, srv *Server, publish func(ctx context.Context, channel, message string) error) func() time.Duration {
	b.Helper()
	const channel, message = "floor", "123456789012345678901234567890123456789012345678"
	ctx := context.Background()
	inbox := srv.Client().Subscribe(ctx, channel)
	b.Cleanup(func() { _ = inbox.Close() })
	redistest.Must(inbox.Receive(ctx))(b)
	return func() time.Duration {
		got := make(chan time.Time, 1)
		go func() {
			redistest.NoError(b, redistest.ErrorOf(inbox.ReceiveMessage(ctx)))
			got <- time.Now()
		}()
		time.Sleep(5 * time.Millisecond) // until it is asleep in its read
		began := time.Now()
		redistest.WantErr(b, publish(ctx, channel, message))
		return (<-got).Sub(began)
	}
}

// Timed is how long each call of fn takes, none of which may fail.
func Timed(b *testing.B, fn func() error) func() time.Duration {
	return func() time.Duration {
		b.Helper()
		began := time.Now()
		redistest.WantErr(b, fn())
		return time.Since(began)
	}
}

func Micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func Sum(all []int) (n int) {
	for _, i := range all {
		n += i
	}
	return n
}

// Once runs fn in the first op and lets the others pass: for what needs its own
// time, such as a period of renewals, however long the benchmark is to run.
func Once(b *testing.B, fn func()) {
	b.Helper()
	for done := false; b.Loop(); done = true {
		if !done {
			fn()
		}
	}
	b.ReportMetric(0, "ns/op")
}

func info(b testing.TB, rdb *redis.Client, section, name string) (n float64) {
	b.Helper()
	_, rest, found := strings.Cut(redistest.Must(rdb.Info(context.Background(), section).Result())(b), "\n"+name+":")
	_, err := fmt.Sscan(rest, &n)
	redistest.CheckNow(b, found && err == nil, "INFO %s: %s: %v", section, name, err)
	return n
}

// ServerCPU is the CPU time that the server's one thread for commands has used, in seconds.
func ServerCPU(b testing.TB, rdb *redis.Client) float64 {
	b.Helper()
	return info(b, rdb, "cpu", "used_cpu_user_main_thread") + info(b, rdb, "cpu", "used_cpu_sys_main_thread")
}

func ServerMemory(b testing.TB, rdb *redis.Client) float64 {
	b.Helper()
	return info(b, rdb, "memory", "used_memory")
}

// KeyMemory is what the server says that keys take, in bytes, every element looked at.
func KeyMemory(b testing.TB, rdb *redis.Client, keys ...string) (bytes float64) {
	b.Helper()
	for _, key := range keys {
		n, err := rdb.MemoryUsage(context.Background(), key, 0).Result()
		redistest.CheckNow(b, err == nil, "MEMORY USAGE %s: %v", key, err)
		bytes += float64(n)
	}
	return bytes
}

// Heap is how many bytes of the heap are in use, after a collection.
func Heap() float64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go of in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// CPU is how long this process has run on any core.
func CPU(b testing.TB) time.Duration {
	b.Helper()
	var u syscall.Rusage
	redistest.WantErr(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
