package leaseholdotel_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdotel"
)

// The two events of a lease.
var released = leasehold.Event{
	Kind: leasehold.EventHoldEnded, Type: "mutex", Family: "f", Outcome: leasehold.OutcomeReleased, Duration: time.Millisecond, Permits: 1,
}

func acquired(ctx context.Context) leasehold.Event {
	e := released
	e.Kind, e.Outcome, e.Context = leasehold.EventAcquired, leasehold.OutcomeGranted, ctx
	return e
}

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
				o.Observe(acquired(context.Background()))
				o.Observe(released)
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

type panicsCtx struct{ context.Context }

func (panicsCtx) Value(any) any { panic("the request is over") }

// A ctx whose values cannot be read any more ends no process, and spoils no other event.
func TestCtxThatPanicsSpoilsNoOtherEvent(t *testing.T) {
	o, reader := meter(t, leaseholdotel.Config{})
	for _, took := range []time.Duration{time.Millisecond, time.Second} { // the slow one gets a span
		e := acquired(panicsCtx{context.Background()})
		e.Duration = took
		func() {
			defer func() { _ = recover() }() // as a handle does
			o.Observe(e)
		}()
		o.Observe(released)
	}
	o.Observe(acquired(context.Background()))
	got := read(t, reader)
	redistest.Expect(t, got["permit.held[{permit}]{mutex}"], 1, "%v permits are held")
	redistest.Expect(t, got["acquire.duration[s]{mutex granted}"], 3, "%v acquisitions were counted")
}

// lentCtx is a ctx that serves another request once Observe has returned.
type lentCtx struct {
	context.Context
	returned, used atomic.Bool
}

func (c *lentCtx) Value(key any) any {
	if c.returned.Load() {
		c.used.Store(true)
	}
	return c.Context.Value(key)
}

// The ctx of an acquisition is not used once Observe has returned: until its batch is recorded, it may long be that of
// another request, or hang. The acquisition is still an exemplar of its trace.
func TestCtxIsNotUsedLater(t *testing.T) {
	o, reader := meter(t, leaseholdotel.Config{})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := &lentCtx{Context: trace.ContextWithSpanContext(context.Background(), span)}
	o.Observe(acquired(ctx))
	ctx.returned.Store(true)
	var rm metricdata.ResourceMetrics
	redistest.WantErr(t, reader.Collect(t.Context(), &rm))
	redistest.Check(t, !ctx.used.Load(), "the ctx is used after Observe has returned")
	exemplars := 0
	for _, m := range rm.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Histogram[float64]); ok {
			for _, e := range data.DataPoints[0].Exemplars {
				exemplars++
				redistest.Check(t, trace.TraceID(e.TraceID) == span.TraceID() && trace.SpanID(e.SpanID) == span.SpanID(), "an exemplar of another span: %+v", e)
			}
		}
	}
	redistest.Expect(t, exemplars, 1, "%d exemplars")
}

// What nobody collects is recorded all the same, so that it takes no more memory than some batches.
func TestBatchesAreRecordedWithoutACollection(t *testing.T) {
	recorded := make(chan struct{}, 1000)
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()), sdk.WithExemplarFilter(func(context.Context) bool {
		select {
		case recorded <- struct{}{}:
		default:
		}
		return false
	}))
	o := redistest.Must(leaseholdotel.New(leaseholdotel.Config{MeterProvider: provider}))(t)
	for range 1_000 {
		o.Observe(released)
	}
	redistest.Get(t, "a record", recorded)
}

// A provider that panics ends no process, and spoils no other event.
func TestProviderThatPanicsSpoilsNoOtherEvent(t *testing.T) {
	calls := 0
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithExemplarFilter(func(context.Context) bool {
		if calls++; calls == 100 {
			panic("the filter is broken")
		}
		return false
	}))
	o := redistest.Must(leaseholdotel.New(leaseholdotel.Config{MeterProvider: provider}))(t)
	for range 1_000 {
		o.Observe(released)
	}
	redistest.AtLeast(t, read(t, reader)["hold.duration[s]{mutex released}"], 999, "%v holds were counted")
}
