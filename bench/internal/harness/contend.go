package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/internal/redistest"
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
	for _, c := range all {
		counts, turns, holds, calls, span := contend(c, n, time.Duration(b.N)*100*time.Millisecond, func() float64 { return Scripts(b, stats) })
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

// Saturation is a crowd that keeps a server busy. Units says how much one call of
// its Pair is, 0 = 1, and Command which command it sends.
type Saturation struct {
	Crowd
	Units   float64
	Command string
}

type spent struct{ units, cpu, micros, calls, reads float64 }

func (s *spent) add(o spent) {
	s.units, s.cpu, s.micros, s.calls, s.reads = s.units+o.units, s.cpu+o.cpu, s.micros+o.micros, s.calls+o.calls, s.reads+o.reads
}

// beside is the CPU time, in µs, that the commands themselves did not take.
func (s *spent) beside() float64 { return 1e6*s.cpu - s.micros }

// Saturate lets n goroutines drive a server with load, and reports what it can do of that where it has a core for
// itself, "<name>/s": the units done by the CPU seconds of the server's thread.
//
// Beside it a prediction, "<name>-predicted/s", from figures of INFO. A unit of load takes
//
//	its commands' time in commandstats
//	+ its commands × the overhead of any command (parsing, finding it, answering)
//	+ its reads × the overhead of any read (the system calls of a round trip)
//
// of the server's CPU. The two overheads are those of commands that do nothing and run by turns with load: of lone
// each is a round trip of its own, of many they go together, as those of load do.
func Saturate(b *testing.B, stats *redis.Client, n int, lone, many, load Saturation) (measured float64) {
	b.Helper()
	// One core for this process, so that the server is not pushed off its own: commandstats is time by the clock.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const span = 40 * time.Millisecond
	all := []Saturation{lone, many, load}
	for _, s := range all {
		Run(b, s.Crowd, n, span/4)
	}
	did := make([]spent, len(all))
	for b.Loop() {
		for i, s := range all {
			did[i].add(saturate(b, stats, n, s, span))
		}
	}
	command, read := overheads(did[0], did[1])
	got := did[2]
	b.ReportMetric(0, "ns/op")
	measured = got.units / got.cpu
	b.ReportMetric(measured, load.Name+"/s")
	b.ReportMetric(1e6*got.units/(got.micros+got.calls*command+got.reads*read), load.Name+"-predicted/s")
	return measured
}

// overheads is what a command and a read cost, by two crowds that differ in the number of commands in a read:
// what both crowds spent beside their commands is calls × command + reads × read.
func overheads(lone, many spent) (command, read float64) {
	det := lone.calls*many.reads - many.calls*lone.reads
	command = (lone.beside()*many.reads - many.beside()*lone.reads) / det
	read = (lone.calls*many.beside() - many.calls*lone.beside()) / det
	return command, read
}

func saturate(b testing.TB, stats *redis.Client, n int, s Saturation, span time.Duration) spent {
	b.Helper()
	cpu := ServerCPU(b, stats)
	micros, calls := ServerMicros(b, stats, s.Command)
	reads := info(b, stats, "stats", "total_reads_processed")
	pairs, _ := Run(b, s.Crowd, n, span)
	after, done := ServerMicros(b, stats, s.Command)
	return spent{
		units:  float64(pairs) * max(1, s.Units),
		cpu:    ServerCPU(b, stats) - cpu,
		micros: after - micros,
		calls:  done - calls,
		reads:  info(b, stats, "stats", "total_reads_processed") - reads,
	}
}

// Noops is a crowd that sends empty scripts by rdb, in pipelines of size.
func Noops(b testing.TB, rdb redis.UniversalClient, size int) Saturation {
	b.Helper()
	redistest.WantErr(b, Noop.Load(context.Background(), rdb).Err())
	s := Saturation{Units: float64(size), Command: "evalsha"}
	s.Name = "noop"
	s.Pair = func(ctx context.Context, _ int) error {
		if size == 1 {
			return rdb.EvalSha(ctx, Noop.Hash(), []string{"noop"}).Err()
		}
		_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for range size {
				pipe.EvalSha(ctx, Noop.Hash(), []string{"noop"})
			}
			return nil
		})
		return err
	}
	return s
}

// Hits interleaves a bare GET and decode of a value with hits of the same, for values of some sizes. hits makes the
// competitors, all of one client.
func Hits(b *testing.B, hits func(b *testing.B, rdb *redis.Client, v User) []Runner) {
	for _, size := range []struct {
		name  string
		notes int
	}{{"100B", 20}, {"4kB", 4000}, {"100kB", 100_000}} {
		b.Run(size.name, func(b *testing.B) {
			rdb, v := Start(b).Client(), Ada(size.notes)
			floor := Runner{Name: "floor", Pair: BareHit(b, rdb, v)}
			Interleave(b, append([]Runner{floor}, hits(b, rdb, v)...)...)
		})
	}
}

// BareHit stores v and is a GET and decode of it: the floor of a cache's hit.
func BareHit[T any](b testing.TB, rdb *redis.Client, v T) func() error {
	b.Helper()
	ctx := context.Background()
	packed := redistest.Must(msgpack.Marshal(v))(b)
	redistest.WantErr(b, rdb.Set(ctx, "bare", packed, 0).Err())
	return func() error {
		data, err := rdb.Get(ctx, "bare").Bytes()
		if err != nil {
			return err
		}
		var v T
		return msgpack.Unmarshal(data, &v)
	}
}

// The calls of Redis that a lock and an unlock consist of, with as many words and nothing
// else: no decision, no reply that is looked at. What they cost is the floor of a pair with
// a queue, a token and an expiry by the server's clock.
var (
	takeCalls = redis.NewScript(`local time = redis.call('TIME')
redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3])
redis.call('SET', KEYS[4], time[1], 'PX', 86400000, 'GET')
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], ARGV[5])
return { 1, 2, 3, 4, 0, 0 }`)
	giveCalls = redis.NewScript(`redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('EXISTS', KEYS[2])
return { 1 }`)
)

type Calls struct {
	keys       []string
	take, give []any
}

// NewCalls makes the calls of n keys, and has the server know their scripts.
func NewCalls(b testing.TB, rdb redis.Scripter, n int) []Calls {
	b.Helper()
	for _, s := range []*redis.Script{takeCalls, giveCalls} {
		redistest.WantErr(b, s.Load(context.Background(), rdb).Err())
	}
	all := make([]Calls, n)
	for i := range all {
		base := "leasehold:mtx:{calls:key-" + strconv.Itoa(i) + "}:"
		member := "0123456789012345678901." + strconv.Itoa(i) + ".1.30000.1"
		all[i] = Calls{
			keys: []string{base + "holders", base + "queue", base + "alive", base + "fence"},
			take: []any{member, 0, 30000, 1, Now()/1e6 + 3600_000, "0 0"},
			give: []any{member, 0, 0},
		}
	}
	return all
}

// Pair takes and gives back, a round trip each.
func (c *Calls) Pair(ctx context.Context, rdb redis.Scripter) error {
	return errors.Join(c.Take(ctx, rdb).Err(), c.Give(ctx, rdb).Err())
}

func (c *Calls) Take(ctx context.Context, rdb redis.Scripter) *redis.Cmd {
	return rdb.EvalSha(ctx, takeCalls.Hash(), c.keys, c.take...)
}

func (c *Calls) Give(ctx context.Context, rdb redis.Scripter) *redis.Cmd {
	return rdb.EvalSha(ctx, giveCalls.Hash(), c.keys, c.give...)
}
