//go:build unix

package leaseholdotel_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdotel"
	"github.com/leasehold-go/leasehold/semaphore"
)

// cpu is the CPU time that the process has used so far, in ns.
func cpu() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkMetricsOfAPair is what metrics add to an Acquire and a Release: its two events.
func BenchmarkMetricsOfAPair(b *testing.B) {
	o := redistest.Must(leaseholdotel.New(leaseholdotel.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))}))(b)
	got := acquired(context.Background())
	pairs := func(next func() bool) {
		for next() {
			o.Observe(got)
			o.Observe(released)
		}
	}
	for name, run := range map[string]func(b *testing.B){
		"lone":     func(b *testing.B) { pairs(b.Loop) },
		"parallel": func(b *testing.B) { b.RunParallel(func(pb *testing.PB) { pairs(pb.Next) }) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpu()
			run(b)
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkPairsBeside is what a pair of Acquire and Release costs the client without an Observer and with metrics, in
// turns of a few hundred pairs on one server, so that whatever else the machine does hits both. The handle without one
// is there twice: the difference of these two is what the measurement can't resolve.
func BenchmarkPairsBeside(b *testing.B) {
	rdb := redistest.Shared(b, redistest.Newest(b)).Client()
	reader := sdk.NewManualReader()
	o := redistest.Must(leaseholdotel.New(leaseholdotel.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))}))(b)
	var handles [3]*semaphore.Semaphore // without, without, with metrics
	for i := range handles {
		cfg := semaphore.Config{Name: redistest.Name(b), Limit: 1000}
		if i == 2 {
			cfg.Observer = o
		}
		handles[i] = redistest.Must(semaphore.New(rdb, cfg))(b)
		defer handles[i].Close(context.Background())
	}
	const pairs = 512 // a turn
	turn := func(i, goroutines int) (worked, allocs float64) {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		mallocs, before := memory.Mallocs, cpu()
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range pairs / goroutines {
					l, err := handles[i].Acquire(context.Background(), "k")
					if err == nil {
						err = l.Release()
					}
					redistest.NoError(b, err)
				}
			})
		}
		all.Wait()
		if i == 2 {
			_ = reader.Collect(context.Background(), &metricdata.ResourceMetrics{}) // records what was kept, too
		}
		worked = float64(cpu()-before) / pairs
		runtime.ReadMemStats(&memory)
		return worked, float64(memory.Mallocs-mallocs) / pairs
	}
	for _, goroutines := range []int{1, 128} {
		b.Run(fmt.Sprint("goroutines-", goroutines), func(b *testing.B) {
			figures := map[string][]float64{}
			note := func(name string, x float64) { figures[name] = append(figures[name], x) }
			for i := range handles {
				turn(i, goroutines) // warms it up
			}
			for n := 0; b.Loop(); n++ {
				var worked, allocs [len(handles)]float64
				for j := range handles {
					i := (n + j) % len(handles)
					worked[i], allocs[i] = turn(i, goroutines)
				}
				note("cpu-ns/pair", worked[0])
				note("noise-cpu-ns/pair", worked[1]-worked[0])
				note("metrics-cpu-ns/pair", worked[2]-worked[0])
				note("metrics-allocs/pair", allocs[2]-allocs[0])
			}
			b.ReportMetric(0, "ns/op") // of three turns, says nothing
			for name, all := range figures {
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2], name)
			}
		})
	}
}
