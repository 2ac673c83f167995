package leaseholdotel_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdotel"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// recorded returns an observer whose spans are recorded, and a tracer for others beside them.
func recorded(t *testing.T) (leasehold.Observer, *tracetest.SpanRecorder, trace.Tracer) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	o := redistest.Must(leaseholdotel.New(leaseholdotel.Config{TracerProvider: tp}))(t)
	return o, spans, tp.Tracer("test")
}

func TestSpansOfALoaderLieBelowTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, spans, tracer := recorded(t)
		g, err := singleflight.New(leaseholdtest.Client(t), singleflight.Config[string]{
			Name: "pages", TTL: time.Minute, LoadTimeout: time.Second, Observer: o,
		})
		redistest.WantErr(t, err)
		ctx, caller := tracer.Start(t.Context(), "caller")
		_, err = g.Do(ctx, "k", func(ctx context.Context) (string, error) {
			_, query := tracer.Start(ctx, "query")
			query.End()
			return "v", nil
		})
		redistest.WantErr(t, err)
		_, _ = g.Do(ctx, "slow", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		ended := spans.Ended()
		redistest.Require(t, len(ended), 3, "%d spans, want query, load and the failed load")
		query, load, failed := ended[0], ended[1], ended[2]
		redistest.Check(t, load.Name() == "leasehold load" && query.Parent().SpanID() == load.SpanContext().SpanID(),
			"the query's parent is %v, the load is %q %v", query.Parent(), load.Name(), load.SpanContext())
		redistest.Check(t, load.Parent().SpanID() == caller.SpanContext().SpanID() && load.Status().Code != codes.Error,
			"the load: parent %v, status %v", load.Parent(), load.Status())
		redistest.Check(t, failed.Status().Code == codes.Error && failed.Status().Description == "timeout", "the load that took too long: %v", failed.Status())
		_ = g.Close(context.Background())
	})
}

// A slow wait has a span with its times, which joins the span of the framework, because an adapter passes that on in the
// ctx. So do the spans of the handler, whose ctx is the lease's. A quick acquisition has none.
func TestSpansJoinTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, spans, tracer := recorded(t)
		s := redistest.Must(semaphore.New(leaseholdtest.Client(t), semaphore.Config{Name: "caps", Limit: 1, Observer: o}))(t)
		capped := redistest.Must(httpcap.New(s, httpcap.Config{Key: func(*http.Request) string { return "k" }, Wait: time.Minute}))(t)
		h := capped(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, query := tracer.Start(r.Context(), "query")
			query.End()
		}))
		held := redistest.Must(s.Acquire(t.Context(), "k"))(t) // at once: no span
		time.AfterFunc(2*time.Second, func() { _ = held.Release() })
		ctx, request := tracer.Start(t.Context(), "request") // as otelhttp does, outside of the cap
		began := time.Now()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		request.End()
		redistest.WantErr(t, s.Close(context.Background()))
		ended := make(map[string]sdktrace.ReadOnlySpan)
		for _, span := range spans.Ended() {
			ended[span.Name()] = span
		}
		wait := ended["leasehold acquire"]
		redistest.CheckNow(t, len(spans.Ended()) == 3 && wait != nil && ended["query"] != nil, "the spans: %v", ended)
		for _, name := range []string{"leasehold acquire", "query"} {
			parent := ended[name].Parent().SpanID()
			redistest.Check(t, parent == request.SpanContext().SpanID(), "the parent of %s is %v", name, parent)
		}
		redistest.AtLeast(t, wait.EndTime().Sub(wait.StartTime()), 1900*time.Millisecond, "the span is %v long")
		redistest.Check(t, !wait.StartTime().Before(began), "it starts %v before the wait", began.Sub(wait.StartTime()))
	})
}

// A slow call for a run that was complete already is no failure, as one that got no lock is.
func TestSpanOfACompleteRunIsNoError(t *testing.T) {
	o, spans, _ := recorded(t)
	for _, outcome := range []leasehold.Outcome{leasehold.OutcomeGranted, leasehold.OutcomeComplete, leasehold.OutcomeBusy} {
		o.Observe(leasehold.Event{Kind: leasehold.EventAcquired, Outcome: outcome, Context: t.Context(), Duration: time.Second})
	}
	for i, want := range []codes.Code{codes.Unset, codes.Unset, codes.Error} {
		redistest.Expect(t, spans.Ended()[i].Status().Code, want, "span %d has the status %v", i)
	}
}
