package leaseholdotel_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/leaseholdotel"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The span of a wait joins the span of the framework, which an adapter passes on in the ctx, and
// so do the spans of the handler, whose ctx is the lease's.
func TestSpansJoinTheRequests(t *testing.T) {
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
		capped, err := httpcap.New(s, httpcap.Config{Key: func(*http.Request) string { return "k" }, Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		h := capped(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, query := tp.Tracer("test").Start(r.Context(), "query")
			query.End()
		}))
		held, err := s.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2*time.Second, func() { _ = held.Release() })
		ctx, request := tp.Tracer("test").Start(t.Context(), "request") // as otelhttp does, outside of the cap
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		request.End()
		parents := make(map[string]bool)
		for _, span := range spans.Ended() {
			parents[span.Name()] = span.Parent().SpanID() == request.SpanContext().SpanID()
		}
		if len(parents) != 3 || !parents["leasehold acquire"] || !parents["query"] {
			t.Errorf("the spans, and whether the request is their parent: %v", parents)
		}
		_ = s.Close(context.Background())
	})
}
