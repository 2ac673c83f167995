//go:build unix

package leaseholdotel_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/leaseholdotel"
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
	o, err := leaseholdotel.New(leaseholdotel.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))})
	if err != nil {
		b.Fatal(err)
	}
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
