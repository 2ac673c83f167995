package leaseholdotel_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

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
	redistest.Check(t, got["acquire.duration[s]{mutex granted}"] >= 1, "no acquisition was counted: %v", got)
}

// What nobody collects is recorded all the same, so that it takes no more memory than some batches.
func TestBatchesAreRecordedWithoutACollection(t *testing.T) {
	o, _ := meter(t, leaseholdotel.Config{})
	freed := make(chan struct{})
	func() {
		ctx := &struct{ context.Context }{context.Background()}
		runtime.SetFinalizer(ctx, func(any) { close(freed) })
		o.Observe(acquired(ctx))
	}()
	for range 1_000 {
		o.Observe(released)
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
