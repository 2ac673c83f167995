package singleflight

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// All that the server has is flushed during a load: within a renewal the loader's
// ctx ends with ErrLost. What it returns all the same is for its first caller;
// Each caller that joined, here and elsewhere, asks again.
func TestFaultFlushDuringALoad(t *testing.T) {
	const leaseTTL = 1500 * time.Millisecond
	lease := func(c *singleflight.Config[string]) { c.LeaseTTL = leaseTTL }
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	g, other := s.group(srv.Client(), lease), s.group(srv.Client(), lease)
	warmUp(t, g)
	began, lost, gate := make(chan struct{}), make(chan error, 1), make(chan struct{})
	var once sync.Once
	var later atomic.Int32
	load := func(ctx context.Context) (string, error) {
		v := "new"
		first := false
		once.Do(func() { first = true })
		if !first {
			later.Add(1)
			return v, nil
		}
		close(began)
		<-ctx.Done()
		lost <- context.Cause(ctx)
		<-gate
		return "old", nil
	}
	leads := startFetch(t.Context(), g, s.Key, load)
	harness.Got(t, 10*time.Second, "the load", began)
	joins, waits := startFetch(t.Context(), g, s.Key, load), startFetch(t.Context(), other, s.Key, load)
	s.WaitQueued(1)
	flushed := time.Now()
	if err := s.RDB.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := harness.Got(t, 10*time.Second, "the end of the loader's ctx", lost); !errors.Is(err, leasehold.ErrLost) {
		t.Errorf("the loader's ctx ended with %v; want ErrLost", err)
	}
	told := time.Since(flushed)
	t.Logf("the loader was told after %v", told)
	if told > leaseTTL/3+lateSlack {
		t.Errorf("the loader was told after %v; want a renewal's interval, %v", told, leaseTTL/3)
	}
	close(gate)
	wantValue(t, "the loading caller", "old", leads)
	wantValue(t, "the caller that joined", "new", joins)
	wantValue(t, "the waiting caller", "new", waits)
	if n := later.Load(); n != 1 {
		t.Errorf("%d loads after the lost one; want 1", n)
	}
	s.clean(0)
}

// It can't be learnt what became of a publication: Do returns all the same, after
// a second. The first caller has its value. A caller that joined has ErrUnavailable, or a
// value under LoadLocally.
func TestFaultUnknownPublish(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		for name, policy := range map[string]configChange{"fail": func(*singleflight.Config[string]) {}, "load locally": loadLocally} {
			for how, act := range map[string]redistest.Action{"closed": redistest.Close, "silent": redistest.Vanish} {
				t.Run(name+", "+how, func(t *testing.T) {
					t.Parallel()
					s := newFaultSite(t, target.Client(t))
					p := redistest.NewProxy(t, target.Addr())
					g := s.group(p.Client(quickTimeouts), policy)
					warmUp(t, g)
					load, began, gate := oldThenNew()
					leads := startFetch(t.Context(), g, s.Key, load)
					harness.Got(t, 10*time.Second, "the load", began)
					joins := startFetch(t.Context(), g, s.Key, load)
					time.Sleep(100 * time.Millisecond)
					p.SetHook(func(ev redistest.Event) redistest.Action {
						if ev.Stage == redistest.OnReply && harness.Script(ev.Cmd) == "load publish" {
							return act
						}
						return redistest.Pass
					})
					close(gate)
					at := time.Now()
					wantValue(t, "the loading caller", "old", leads)
					if took := time.Since(at); took > 2500*time.Millisecond { // the lease lasts for 3 s
						t.Errorf("Do returned %v after the load", took)
					}
					r := harness.Got(t, 20*time.Second, "the caller that joined", joins)
					switch {
					case name == "fail" && !errors.Is(r.err, leasehold.ErrUnavailable):
						t.Errorf("the caller that joined got %q (%v), %v; want ErrUnavailable", r.Value, r.Source, r.err)
					case name != "fail" && r.err != nil:
						t.Errorf("the caller that joined got %v; want a value", r.err)
					}
					t.Logf("Do returned after %v; the caller that joined got %q (%v), %v", time.Since(at), r.Value, r.Source, r.err)
					p.SetHook(nil)
				})
			}
		}
	})
}
