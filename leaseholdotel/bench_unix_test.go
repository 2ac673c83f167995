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
	"time"

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
	ctx := context.Background()
	pair := func() {
		o.Observe(leasehold.Event{
			Kind: leasehold.EventAcquired, Type: "semaphore", Family: "caps", Outcome: leasehold.OutcomeGranted,
			Context: ctx, Duration: time.Millisecond, Permits: 1,
		})
		o.Observe(leasehold.Event{
			Kind: leasehold.EventHoldEnded, Type: "semaphore", Family: "caps", Outcome: leasehold.OutcomeReleased,
			Duration: time.Millisecond, Permits: 1,
		})
	}
	b.Run("lone", func(b *testing.B) {
		b.ReportAllocs()
		before := cpu()
		for b.Loop() {
			pair()
		}
		b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		before := cpu()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				pair()
			}
		})
		b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkPairsBeside is what a pair of Acquire and Release costs the client without an
// Observer and with metrics, in turns of a few hundred pairs on one server, so that
// whatever else the machine does hits both. The handle without one is there twice: the
// difference of these two is what the measurement can't resolve.
func BenchmarkPairsBeside(b *testing.B) {
	rdb := redistest.Shared(b, redistest.Newest(b)).Client()
	reader := sdk.NewManualReader()
	o, err := leaseholdotel.New(leaseholdotel.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	redistest.WantErr(b, err)
	var collected metricdata.ResourceMetrics
	type runner struct {
		caps   *semaphore.Semaphore
		cpu    []float64 // ns a pair, of each turn
		allocs []float64
	}
	runners := make([]runner, 3) // without, without, with metrics
	for i := range runners {
		cfg := semaphore.Config{Name: redistest.Name(b), Limit: 1000}
		if i == 2 {
			cfg.Observer = o
		}
		if runners[i].caps, err = semaphore.New(rdb, cfg); err != nil {
			b.Fatal(err)
		}
		defer runners[i].caps.Close(context.Background())
	}
	const pairs = 512 // a turn
	turn := func(r *runner, goroutines int) {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		mallocs, before := memory.Mallocs, cpu()
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range pairs / goroutines {
					l, err := r.caps.Acquire(context.Background(), "k")
					if err == nil {
						err = l.Release()
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if r == &runners[2] {
			_ = reader.Collect(context.Background(), &collected) // records what was kept, too
		}
		worked := cpu() - before
		runtime.ReadMemStats(&memory)
		r.cpu = append(r.cpu, float64(worked)/pairs)
		r.allocs = append(r.allocs, float64(memory.Mallocs-mallocs)/pairs)
	}
	median := func(all []float64) float64 {
		all = slices.Sorted(slices.Values(all))
		return all[len(all)/2]
	}
	added := func(to, of []float64) float64 {
		each := make([]float64, len(of))
		for i := range of {
			each[i] = of[i] - to[i]
		}
		return median(each)
	}
	for _, goroutines := range []int{1, 128} {
		b.Run(fmt.Sprint("goroutines-", goroutines), func(b *testing.B) {
			for i := range runners {
				turn(&runners[i], goroutines) // warms it up
				runners[i].cpu, runners[i].allocs = nil, nil
			}
			for i := 0; b.Loop(); i++ {
				for j := range runners {
					turn(&runners[(i+j)%len(runners)], goroutines)
				}
			}
			without, again, with := &runners[0], &runners[1], &runners[2]
			b.ReportMetric(0, "ns/op") // of three turns, says nothing
			b.ReportMetric(median(without.cpu), "cpu-ns/pair")
			b.ReportMetric(added(without.cpu, again.cpu), "noise-cpu-ns/pair")
			b.ReportMetric(added(without.cpu, with.cpu), "metrics-cpu-ns/pair")
			b.ReportMetric(added(without.allocs, with.allocs), "metrics-allocs/pair")
		})
	}
}
