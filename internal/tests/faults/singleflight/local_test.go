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

func faultLocally(c *singleflight.Config[string]) { c.OnUnavailable = singleflight.LoadLocally }

// faultTwo is a group behind a proxy, and one beside it, that do without Redis
// where they must.
func faultTwo(t *testing.T, target redistest.Target) (*faultSite, *redistest.Proxy, *singleflight.Group[string], *singleflight.Group[string]) {
	s := newFaultSite(t, target.Client(t))
	p := redistest.NewProxy(t, target.Addr())
	g, other := s.group(p.Client(), faultLocally), s.group(target.Client(t), faultLocally)
	faultWarm(t, g)
	return s, p, g, other
}

// faultStops has a proxy close the connection rather than carry a script.
func faultStops(p *redistest.Proxy, script string) {
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnRequest && harness.Script(ev.Cmd) == script {
			return redistest.Close
		}
		return redistest.Pass
	})
}

// faultOldThenNew is a loader that returns "old" when gate is closed, and "new"
// in every later call.
func faultOldThenNew() (load faultLoader, began, gate chan struct{}) {
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

func faultWant(t *testing.T, who, want string, done <-chan faultFetched) {
	t.Helper()
	if r := harness.Got(t, 20*time.Second, who, done); r.err != nil || r.Value != want {
		t.Errorf("%s got %q (%v), %v; want %q", who, r.Value, r.Source, r.err, want)
	}
}

// faultLooked waits until a caller behind the proxy has read the cache, and has had
// time to join a flight where it may.
func faultLooked(t *testing.T, p *redistest.Proxy, gets int) {
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
// process invalidates; who then comes to the first process and reads Redis must
// not be given that load, which began before.
func TestFaultLocalLoadIsNotSharedAfterAnInvalidate(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		s, p, g, other := faultTwo(t, target)
		load, began, gate := faultOldThenNew()
		faultStops(p, "load enter")
		first := faultFetch(t.Context(), g, s.Key, load)
		harness.Got(t, 20*time.Second, "the load without Redis", began)
		p.SetHook(nil)
		if err := other.Invalidate(t.Context(), s.Key); err != nil {
			t.Fatal(err)
		}
		gets := p.Count("GET")
		second := faultFetch(t.Context(), g, s.Key, load)
		faultLooked(t, p, gets)
		close(gate)
		faultWant(t, "who loaded", "old", first)
		faultWant(t, "who came after the Invalidate", "new", second)
	})
}

// A process can't learn what became of its publication: that it met an
// invalidation. Who joined the load after that Invalidate returned must not get
// it, although it would without Redis.
func TestFaultUnknownPublishIsNotSharedAfterAnInvalidate(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		s, p, g, other := faultTwo(t, target)
		load, began, gate := faultOldThenNew()
		first := faultFetch(t.Context(), g, s.Key, load)
		harness.Got(t, 10*time.Second, "the load", began)
		if err := other.Invalidate(t.Context(), s.Key); err != nil {
			t.Fatal(err)
		}
		gets := p.Count("GET")
		second := faultFetch(t.Context(), g, s.Key, load)
		faultLooked(t, p, gets)
		faultStops(p, "load publish")
		close(gate)
		faultWant(t, "who loaded", "old", first)
		faultWant(t, "who came after the Invalidate", "new", second)
	})
}
