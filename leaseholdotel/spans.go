package leaseholdotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
)

func (o *Observer) attributes(e leasehold.Event) []attribute.KeyValue {
	return []attribute.KeyValue{attrType.String(e.Type), attrFamily.String(o.sets.familyOf(e.Family))}
}

// waitSpan makes the span of an acquisition that has ended.
func (o *Observer) waitSpan(e leasehold.Event) {
	now := time.Now()
	_, span := o.tracer.Start(e.Context, "leasehold acquire", trace.WithTimestamp(now.Add(-e.Duration)),
		trace.WithAttributes(append(o.attributes(e), attrOutcome.String(e.Outcome))...))
	if e.Outcome != leasehold.OutcomeGranted && e.Outcome != leasehold.OutcomeComplete {
		span.SetStatus(codes.Error, e.Outcome)
	}
	span.End(trace.WithTimestamp(now))
}

// ownSpan is the key of the Observer's span in the ctx of a load. When the load ends, the
// current span of that ctx may be another one.
type ownSpan struct{ o *Observer }

// loadStarted puts a span into the loader's ctx, so that the loader's own spans become children of it.
func (o *Observer) loadStarted(e leasehold.Event) {
	ctx, span := o.tracer.Start(e.Load.Context, "leasehold load", trace.WithAttributes(o.attributes(e)...))
	e.Load.Context = context.WithValue(ctx, ownSpan{o}, span)
}

func (o *Observer) loadEnded(e leasehold.Event) {
	span, ok := e.Load.Context.Value(ownSpan{o}).(trace.Span)
	if !ok {
		return
	}
	span.SetAttributes(attrOutcome.String(e.Outcome))
	switch e.Outcome {
	case leasehold.OutcomeOK, leasehold.OutcomeNotFound:
	default:
		span.SetStatus(codes.Error, e.Outcome)
	}
	span.End()
}
