//go:build unix

package leaseholdotel_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasehold-go/leasehold"
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

// BenchmarkPairsBeside is what a pair of Acquire and Release costs the client without an Observer, and what metrics add,
// in turns of a few hundred pairs on one server, so that whatever else the machine does hits both.
func BenchmarkPairsBeside(b *testing.B) {
	rdb := redistest.Shared(b, redistest.Newest(b)).Client()
	reader := sdk.NewManualReader()
	o := redistest.Must(leaseholdotel.New(leaseholdotel.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))}))(b)
	open := func(o leasehold.Observer) *semaphore.Semaphore {
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: redistest.Name(b), Limit: 1000, Observer: o}))(b)
		b.Cleanup(func() { _ = s.Close(context.Background()) })
		return s
	}
	without, with := open(nil), open(o)
	const pairs = 512 // a turn
	turn := func(s *semaphore.Semaphore, goroutines int) float64 {
		before := cpu()
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range pairs / goroutines {
					l, err := s.Acquire(context.Background(), "k")
					if err == nil {
						err = l.Release()
					}
					redistest.NoError(b, err)
				}
			})
		}
		all.Wait()
		if s == with {
			_ = reader.Collect(context.Background(), &metricdata.ResourceMetrics{}) // records what was kept, too
		}
		return float64(cpu()-before) / pairs
	}
	for _, goroutines := range []int{1, 128} {
		b.Run(fmt.Sprint("goroutines-", goroutines), func(b *testing.B) {
			var bare, more []float64
			turn(without, goroutines) // warms it up
			turn(with, goroutines)
			for b.Loop() {
				one := turn(without, goroutines)
				bare, more = append(bare, one), append(more, turn(with, goroutines)-one)
			}
			slices.Sort(bare)
			slices.Sort(more)
			b.ReportMetric(0, "ns/op") // of two turns, says nothing
			b.ReportMetric(bare[len(bare)/2], "cpu-ns/pair")
			b.ReportMetric(more[len(more)/2], "metrics-cpu-ns/pair")
		})
	}
}
