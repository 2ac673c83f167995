package leaseholdotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
)

const scope = "github.com/leasehold-go/leasehold/leaseholdotel"

// Config configures an [Observer]. Its zero value is a good default.
type Config struct {
	// MeterProvider gets the metrics and TracerProvider gets the traces. nil: the global
	// providers, which do nothing until they are set.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider

	// SlowWait is the shortest duration of an acquisition that gets a span. The span is made after the acquisition,
	// with the times of its start and end. 0: 5 ms. Negative: no acquisition gets a span.
	SlowWait time.Duration

	// MaxFamilies bounds the number of values of the attribute leasehold.family, for programs
	// that make up family names. All families beyond it are reported together as "_other". 0:
	// 100.
	MaxFamilies int
}

// Observer implements leasehold.Observer. It is safe for concurrent use.
type Observer struct {
	instruments
	sets     sets
	batch    batch
	meter    metric.Meter
	tracer   trace.Tracer
	slowWait time.Duration

	mu      sync.Mutex
	watched map[*watch]struct{}
}

var _ leasehold.Observer = (*Observer)(nil)

// New returns an Observer. Its error names an instrument that the MeterProvider refused.
func New(cfg Config) (*Observer, error) {
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MaxFamilies < 0 {
		return nil, fmt.Errorf("leaseholdotel: MaxFamilies is %d; want 0 (100) or more", cfg.MaxFamilies)
	}
	o := &Observer{
		meter: cfg.MeterProvider.Meter(scope), tracer: cfg.TracerProvider.Tracer(scope),
		slowWait: cmp.Or(cfg.SlowWait, 5*time.Millisecond), watched: map[*watch]struct{}{},
	}
	o.sets.most = cmp.Or(cfg.MaxFamilies, 100)
	o.batch.record = o.recordUse
	if err := errors.Join(o.instruments.make(o.meter)...); err != nil {
		return nil, fmt.Errorf("leaseholdotel: %w", err)
	}
	if _, err := o.meter.RegisterCallback(o.collect, o.limit, o.queue); err != nil {
		return nil, fmt.Errorf("leaseholdotel: %w", err)
	}
	return o, nil
}

// Default returns an Observer with the global providers. Each call returns the same one.
var Default = sync.OnceValue(func() *Observer {
	o, err := New(Config{})
	if err != nil {
		otel.Handle(err) // o is nil, and a nil Observer observes nothing
	}
	return o
})

// Observe implements leasehold.Observer. Each collection of the metrics that begins after the call includes the event.
func (o *Observer) Observe(e leasehold.Event) {
	if o == nil {
		return
	}
	switch e.Kind {
	case leasehold.EventAcquired:
		o.acquired(e)
		if o.slowWait >= 0 && e.Duration >= o.slowWait {
			o.waitSpan(e)
		}
	case leasehold.EventHoldEnded:
		o.batch.keep(e)
	case leasehold.EventRenewed:
		if e.Outcome == leasehold.OutcomeOK {
			o.margin.Record(context.Background(), e.Duration.Seconds(), o.sets.of(setKey{typ: e.Type, family: e.Family}).record...)
		}
	case leasehold.EventLoadStarted:
		o.loadStarted(e)
	case leasehold.EventLoadEnded:
		o.load.Record(e.Load.Context, e.Duration.Seconds(), o.sets.of(keyOf(e)).record...)
		o.loadEnded(e)
	}
	if c := o.counters[e.Kind]; c != nil {
		c.Add(context.Background(), 1, o.sets.of(keyOf(e)).add...)
	}
}

// acquired keeps an acquisition, with no more of its ctx than the span that exemplars name: until
// the batch is recorded, the ctx may be that of another request. Its methods may panic, hang, or end the goroutine.
func (o *Observer) acquired(e leasehold.Event) {
	ctx := e.Context
	e.Context = context.Background()
	defer func() { o.batch.keep(e) }()
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		e.Context = trace.ContextWithSpanContext(e.Context, span)
	}
}

func keyOf(e leasehold.Event) setKey { return setKey{e.Type, e.Family, e.Outcome, e.Kept} }

// recordUse records an acquisition or the end of a hold.
func (o *Observer) recordUse(e leasehold.Event) {
	s := o.sets.of(keyOf(e))
	switch {
	case e.Kind == leasehold.EventHoldEnded:
		o.hold.Record(context.Background(), e.Duration.Seconds(), s.record...)
		o.held.Add(context.Background(), -int64(e.Permits), s.family...)
	case e.Outcome == leasehold.OutcomeGranted:
		o.held.Add(e.Context, int64(e.Permits), s.family...)
		fallthrough
	default:
		o.acquire.Record(e.Context, e.Duration.Seconds(), s.record...)
	}
}

// CountGuard counts err if it matches leasehold.ErrFenced, as a write that the Guard of a
// family refused. It returns err. Use it for a Guard whose GuardConfig has no Observer:
//
//	err := telemetry.CountGuard("orders", guard.Set(ctx, key, token, value, ttl))
func (o *Observer) CountGuard(family string, err error) error {
	if errors.Is(err, leasehold.ErrFenced) {
		o.Observe(leasehold.Event{Kind: leasehold.EventGuardRefused, Type: "mutex", Family: family})
	}
	return err
}
