package singleflight

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

func loadLocally(c *singleflight.Config[string]) { c.OnUnavailable = singleflight.LoadLocally }

// twoGroups is a group behind a proxy, and one beside it, that do without Redis
// where they must.
func twoGroups(t *testing.T, target redistest.Target) (*groupSite, *redistest.Proxy, *singleflight.Group[string], *singleflight.Group[string]) {
	s := newFaultSite(t, target.Client(t))
	p := redistest.NewProxy(t, target.Addr())
	g, other := s.group(p.Client(), loadLocally), s.group(target.Client(t), loadLocally)
	warmUp(t, g)
	return s, p, g, other
}

// closeInsteadOf has a proxy close the connection rather than carry a script.
func closeInsteadOf(p *redistest.Proxy, script string) {
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnRequest && harness.Script(ev.Cmd) == script {
			return redistest.Close
		}
		return redistest.Pass
	})
}

// oldThenNew is a loader that returns "old" when gate is closed, and "new"
// in every later call.
func oldThenNew() (load loaderFunc, began, gate chan struct{}) {
	began, gate = make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	return func(context.Context) (string, error) {
		if calls.Add(1) > 1 {
			return "new", nil
		}
		close(began)
		<-gate
		return "old", nil
	}, began, gate
}

func wantValue(t *testing.T, who, want string, done <-chan fetchResult) {
	t.Helper()
	if r := harness.Got(t, 20*time.Second, who, done); r.err != nil || r.Value != want {
		t.Errorf("%s got %q (%v), %v; want %q", who, r.Value, r.Source, r.err, want)
	}
}

// awaitLookups waits until a caller behind the proxy has read the cache, and has had
// time to join a flight where it may.
func awaitLookups(t *testing.T, p *redistest.Proxy, gets int) {
	t.Helper()
	harness.Until(t, 10*time.Second, func() error {
		if p.Count("GET") <= gets {
			return errors.New("it has not looked into the cache")
		}
		return nil
	})
	time.Sleep(50 * time.Millisecond)
}

// Redis can be read but not asked to coordinate (as a primary that has become a
// replica), so a process loads by itself. Redis is well again, and another
// process invalidates; a caller that then comes to the first process and reads Redis must
// not be given that load, which began before.
func TestFaultLocalLoadIsNotSharedAfterAnInvalidate(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		s, p, g, other := twoGroups(t, target)
		load, began, gate := oldThenNew()
		closeInsteadOf(p, "load enter")
		first := startFetch(t.Context(), g, s.Key, load)
		harness.Got(t, 20*time.Second, "the load without Redis", began)
		p.SetHook(nil)
		if err := other.Invalidate(t.Context(), s.Key); err != nil {
			t.Fatal(err)
		}
		gets := p.Count("GET")
		second := startFetch(t.Context(), g, s.Key, load)
		awaitLookups(t, p, gets)
		close(gate)
		wantValue(t, "the loading caller", "old", first)
		wantValue(t, "the caller after the Invalidate", "new", second)
	})
}

// A process can't learn what became of its publication: that it met an
// invalidation. A caller that joined the load after that Invalidate returned must not get
// it, although it would without Redis.
func TestFaultUnknownPublishIsNotSharedAfterAnInvalidate(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		s, p, g, other := twoGroups(t, target)
		load, began, gate := oldThenNew()
		first := startFetch(t.Context(), g, s.Key, load)
		harness.Got(t, 10*time.Second, "the load", began)
		if err := other.Invalidate(t.Context(), s.Key); err != nil {
			t.Fatal(err)
		}
		gets := p.Count("GET")
		second := startFetch(t.Context(), g, s.Key, load)
		awaitLookups(t, p, gets)
		closeInsteadOf(p, "load publish")
		close(gate)
		wantValue(t, "the loading caller", "old", first)
		wantValue(t, "the caller after the Invalidate", "new", second)
	})
}
