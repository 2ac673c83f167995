package leaseholdotel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasehold-go/leasehold/leaseholdotel"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestSpansOfSlowWaitsAloneWithTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		tp := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
		o, err := leaseholdotel.New(leaseholdotel.Config{TracerProvider: tp})
		if err != nil {
			t.Fatal(err)
		}
		s, err := semaphore.New(leaseholdtest.Client(t), semaphore.Config{Name: "caps", Limit: 1, Observer: o})
		if err != nil {
			t.Fatal(err)
		}
		ctx, caller := tp.Tracer("test").Start(t.Context(), "caller")
		l, err := s.Acquire(ctx, "k") // at once: no span
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(2*time.Second, func() { _ = l.Release() })
		second, err := s.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		_ = second.Release()
		ended := spans.Ended()
		if len(ended) != 1 {
			t.Fatalf("%d spans, want 1", len(ended))
		}
		span := ended[0]
		if span.Name() != "leasehold acquire" || span.Parent().SpanID() != caller.SpanContext().SpanID() {
			t.Errorf("span %q with parent %v", span.Name(), span.Parent())
		}
		if d := span.EndTime().Sub(span.StartTime()); d < 1900*time.Millisecond || span.StartTime().Before(began) {
			t.Errorf("the span is %v long, and starts %v after the wait", d, span.StartTime().Sub(began))
		}
		_ = s.Close(context.Background())
	})
}

func TestSpansOfALoaderLieBelowTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		tp := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
		o, err := leaseholdotel.New(leaseholdotel.Config{TracerProvider: tp})
		if err != nil {
			t.Fatal(err)
		}
		g, err := singleflight.New(leaseholdtest.Client(t), singleflight.Config[string]{
			Name: "pages", TTL: time.Minute, LoadTimeout: time.Second, Observer: o,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, caller := tp.Tracer("test").Start(t.Context(), "caller")
		_, err = g.Do(ctx, "k", func(ctx context.Context) (string, error) {
			_, query := tp.Tracer("test").Start(ctx, "query")
			query.End()
			return "v", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = g.Do(ctx, "slow", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		ended := spans.Ended()
		if len(ended) != 3 {
			t.Fatalf("%d spans, want query, load and the failed load", len(ended))
		}
		query, load, failed := ended[0], ended[1], ended[2]
		if load.Name() != "leasehold load" || query.Parent().SpanID() != load.SpanContext().SpanID() {
			t.Errorf("the query's parent is %v, the load is %q %v", query.Parent(), load.Name(), load.SpanContext())
		}
		if load.Parent().SpanID() != caller.SpanContext().SpanID() || load.Status().Code == codes.Error {
			t.Errorf("the load: parent %v, status %v", load.Parent(), load.Status())
		}
		if failed.Status().Code != codes.Error || failed.Status().Description != "timeout" {
			t.Errorf("the load that took too long: %v", failed.Status())
		}
		_ = g.Close(context.Background())
	})
}
