package harness

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Saturation is a crowd that keeps a server busy. Units says how much one call of
// its Pair is, 0 = 1, and Command which command it sends.
type Saturation struct {
	Crowd
	Units   float64
	Command string
}

type spent struct{ units, cpu, wall, micros, calls, reads float64 }

func (s *spent) add(o spent) {
	s.units, s.cpu, s.wall = s.units+o.units, s.cpu+o.cpu, s.wall+o.wall
	s.micros, s.calls, s.reads = s.micros+o.micros, s.calls+o.calls, s.reads+o.reads
}

// beside is the CPU time, in µs, that the commands themselves did not take.
func (s *spent) beside() float64 { return 1e6*s.cpu - s.micros }

// Saturate lets n goroutines drive a server with load, and reports what it can do of that where it has a core for
// itself, "<name>/s": the units done by the CPU seconds of the server's thread, which had "server-cpu-%" of a core.
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
	b.ReportMetric(100*got.cpu/got.wall, "server-cpu-%")
	b.ReportMetric(got.micros/got.calls, "server-µs")
	b.ReportMetric(command, "command-µs")
	b.ReportMetric(read, "read-µs")
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
	began, cpu := time.Now(), ServerCPU(b, stats)
	micros, calls := ServerMicros(b, stats, s.Command)
	reads := info(b, stats, "stats", "total_reads_processed")
	pairs, _ := Run(b, s.Crowd, n, span)
	after, done := ServerMicros(b, stats, s.Command)
	return spent{
		units:  float64(pairs) * max(1, s.Units),
		cpu:    ServerCPU(b, stats) - cpu,
		wall:   time.Since(began).Seconds(),
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
