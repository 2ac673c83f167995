package singleflight

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// The request for the lease arrives when its caller has long given up: nobody is
// made to wait for a load that never begins.
func TestFaultLateEnterOfWhoGaveUp(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		s := newFaultSite(t, target.Client(t))
		p := redistest.NewProxy(t, target.Addr())
		long := func(c *singleflight.Config[string]) { c.LeaseTTL = 10 * time.Second }
		g := s.group(p.Client(), long)
		warmUp(t, g)
		enter, left := p.HoldRequest(harness.Does("load enter"), 1), p.HoldReply(harness.Does("load leave"), 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		call := startFetch(ctx, g, s.Key, loaderOf("value"))
		enter.Wait()
		cancel()
		if r := harness.Got(t, harness.Slack, "the caller that gave up", call); !errors.Is(r.err, context.Canceled) {
			t.Errorf("the caller that gave up got %q, %v", r.Value, r.err)
		}
		// What is sent to give up passes by, or comes behind, what is held.
		select {
		case <-left.Fired():
		case <-time.After(500 * time.Millisecond):
		}
		left.Release()
		enter.Release()
		time.Sleep(100 * time.Millisecond)
		s.clean(time.Second)
	})
}

// The request for the lease arrives when another process's load, begun and ended
// meanwhile, has stored its value: that is the answer, and nobody loads again.
func TestFaultLateEnterFindsTheValue(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		s := newFaultSite(t, target.Client(t))
		p := redistest.NewProxy(t, target.Addr())
		g, other := s.group(p.Client()), s.group(target.Client(t))
		warmUp(t, g)
		enter := p.HoldRequest(harness.Does("load enter"), 1)
		call := startFetch(t.Context(), g, s.Key, loaderOf("again"))
		enter.Wait()
		wantValue(t, "the other process", "value", startFetch(t.Context(), other, s.Key, loaderOf("value")))
		enter.Release()
		wantValue(t, "the late caller", "value", call)
	})
}

// The answer to the request for the lease, a value that came meanwhile or a
// remembered failure, is held up while another process invalidates it. A caller that joins
// after that must not be given it.
func TestFaultHeldAnswerIsNotSharedAfterAnInvalidate(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		for name, loaded := range map[string]error{"value": nil, "failure": errors.New("old failure")} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newFaultSite(t, target.Client(t))
				p := redistest.NewProxy(t, target.Addr())
				remembers := func(c *singleflight.Config[string]) { c.ErrorTTL = time.Minute }
				g, other := s.group(p.Client(), remembers), s.group(target.Client(t), remembers)
				warmUp(t, g)
				enter, answer := p.HoldRequest(harness.Does("load enter"), 1), p.HoldReply(harness.Does("load enter"), 1)
				first := startFetch(t.Context(), g, s.Key, loaderOf("new"))
				enter.Wait()
				_, err := other.Do(t.Context(), s.Key, func(context.Context) (string, error) { return "old", loaded })
				if (err != nil) != (loaded != nil) {
					t.Fatal(err)
				}
				enter.Release()
				answer.Wait()
				if err := other.Invalidate(t.Context(), s.Key); err != nil {
					t.Fatal(err)
				}
				gets := p.Count("GET")
				second := startFetch(t.Context(), g, s.Key, loaderOf("new"))
				awaitLookups(t, p, gets)
				answer.Release()
				r := harness.Got(t, 10*time.Second, "the earlier caller", first)
				if r.Value != "new" && (r.Value != "old" || r.err != nil) && (loaded == nil || r.err == nil) {
					t.Errorf("the earlier caller got %q, %v", r.Value, r.err)
				}
				wantValue(t, "the caller after the Invalidate", "new", second)
			})
		}
	})
}
