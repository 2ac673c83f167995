package leaseholdotel_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdotel"
)

func TestFamiliesAreCapped(t *testing.T) {
	o, reader := meter(t, leaseholdotel.Config{MaxFamilies: 2})
	for _, f := range []string{"a", "b", "c", "d", "a"} {
		o.Observe(leasehold.Event{Kind: leasehold.EventLateGrant, Type: "mutex", Family: f})
	}
	var rm metricdata.ResourceMetrics
	redistest.WantErr(t, reader.Collect(t.Context(), &rm))
	got := map[string]int64{}
	for _, p := range rm.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		f, _ := p.Attributes.Value("leasehold.family")
		got[f.AsString()] = p.Value
	}
	redistest.Check(t, len(got) == 3 && got["a"] == 2 && got["b"] == 1 && got["_other"] == 2, "counted %v, want a 2, b 1, _other 2", got)
}

// Acquisitions and holds are recorded in batches. Whatever collects and observes at the
// same time, each of them is counted once, by the next collection at the latest.
func TestEachEventIsCountedOnce(t *testing.T) {
	o, reader := meter(t, leaseholdotel.Config{})
	const goroutines, pairs = 8, 3_000
	var observing, collecting sync.WaitGroup
	over := make(chan struct{})
	collecting.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				read(t, reader)
			}
		}
	})
	for range goroutines {
		observing.Go(func() {
			for range pairs {
				o.Observe(leasehold.Event{
					Kind: leasehold.EventAcquired, Type: "mutex", Family: "f", Outcome: leasehold.OutcomeGranted,
					Context: context.Background(), Permits: 1,
				})
				o.Observe(leasehold.Event{
					Kind: leasehold.EventHoldEnded, Type: "mutex", Family: "f", Outcome: leasehold.OutcomeReleased, Permits: 1,
				})
			}
		})
	}
	observing.Wait()
	close(over)
	collecting.Wait()
	got := read(t, reader)
	redistest.Expect(t, got["acquire.duration[s]{mutex granted}"], goroutines*pairs, "%v acquisitions were counted")
	redistest.Expect(t, got["hold.duration[s]{mutex released}"], goroutines*pairs, "%v holds were counted")
	redistest.Expect(t, got["permit.held[{permit}]{mutex}"], 0, "%v permits are held")
}

// What nobody collects is recorded all the same, so that it takes no more memory than some
// batches.
func TestBatchesAreRecordedWithoutACollection(t *testing.T) {
	o, _ := meter(t, leaseholdotel.Config{})
	freed := make(chan struct{})
	func() {
		ctx := &struct{ context.Context }{context.Background()}
		runtime.SetFinalizer(ctx, func(any) { close(freed) })
		o.Observe(leasehold.Event{
			Kind: leasehold.EventAcquired, Type: "mutex", Family: "f", Outcome: leasehold.OutcomeGranted, Context: ctx, Permits: 1,
		})
	}()
	for range 1_000 {
		o.Observe(leasehold.Event{Kind: leasehold.EventHoldEnded, Type: "mutex", Family: "f", Outcome: leasehold.OutcomeReleased, Permits: 1})
	}
	for deadline := time.Now().Add(10 * time.Second); ; runtime.GC() {
		select {
		case <-freed:
			return
		case <-time.After(time.Millisecond):
		}
		redistest.CheckNow(t, !time.Now().After(deadline), "the ctx of the first acquisition is kept after a thousand more events")
		runtime.KeepAlive(o)
	}
}

// lastExport keeps the metrics that a PeriodicReader exports.
type lastExport struct {
	sdk.Exporter
	acquired uint64
}

func (*lastExport) Temporality(sdk.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

func (*lastExport) Aggregation(k sdk.InstrumentKind) sdk.Aggregation {
	return sdk.DefaultAggregationSelector(k)
}

func (*lastExport) ForceFlush(context.Context) error { return nil }

func (*lastExport) Shutdown(context.Context) error { return nil }

func (l *lastExport) Export(_ context.Context, rm *metricdata.ResourceMetrics) error {
	for _, s := range rm.ScopeMetrics {
		for _, m := range s.Metrics {
			if data, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "leasehold.acquire.duration" {
				l.acquired = data.DataPoints[0].Count
			}
		}
	}
	return nil
}

// What was kept for the next batch is in the last collection, that of Shutdown.
func TestShutdownExportsWhatWasKept(t *testing.T) {
	last := &lastExport{}
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewPeriodicReader(last, sdk.WithInterval(time.Hour))))
	o := redistest.Must(leaseholdotel.New(leaseholdotel.Config{MeterProvider: provider}))(t)
	for range 3 {
		o.Observe(leasehold.Event{
			Kind: leasehold.EventAcquired, Type: "mutex", Family: "f", Outcome: leasehold.OutcomeGranted,
			Context: context.Background(), Permits: 1,
		})
	}
	err := provider.Shutdown(t.Context())
	redistest.Check(t, err == nil && last.acquired == 3, "%d acquisitions were exported, %v; want 3", last.acquired, err)
}
