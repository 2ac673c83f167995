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
// who joined, here and elsewhere, asks again.
func TestFaultFlushDuringALoad(t *testing.T) {
	const leaseTTL = 1500 * time.Millisecond
	lease := func(c *singleflight.Config[string]) { c.LeaseTTL = leaseTTL }
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	g, other := s.group(srv.Client(), lease), s.group(srv.Client(), lease)
	faultWarm(t, g)
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
	leads := faultFetch(t.Context(), g, s.Key, load)
	harness.Got(t, 10*time.Second, "the load", began)
	joins, waits := faultFetch(t.Context(), g, s.Key, load), faultFetch(t.Context(), other, s.Key, load)
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
	if told > leaseTTL/3+faultLate {
		t.Errorf("the loader was told after %v; want a renewal's interval, %v", told, leaseTTL/3)
	}
	close(gate)
	faultWant(t, "who loads", "old", leads)
	faultWant(t, "who joined", "new", joins)
	faultWant(t, "who waits", "new", waits)
	if n := later.Load(); n != 1 {
		t.Errorf("%d loads after the lost one; want 1", n)
	}
	s.clean(0)
}

// It can't be learnt what became of a publication: Do returns all the same, after
// a second. The first caller has its value. Who joined has ErrUnavailable, or a
// value under LoadLocally.
func TestFaultUnknownPublish(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		for name, policy := range map[string]faultConfig{"fail": func(*singleflight.Config[string]) {}, "load locally": faultLocally} {
			for how, act := range map[string]redistest.Action{"closed": redistest.Close, "silent": redistest.Vanish} {
				t.Run(name+", "+how, func(t *testing.T) {
					t.Parallel()
					s := newFaultSite(t, target.Client(t))
					p := redistest.NewProxy(t, target.Addr())
					g := s.group(p.Client(faultQuick), policy)
					faultWarm(t, g)
					load, began, gate := faultOldThenNew()
					leads := faultFetch(t.Context(), g, s.Key, load)
					harness.Got(t, 10*time.Second, "the load", began)
					joins := faultFetch(t.Context(), g, s.Key, load)
					time.Sleep(100 * time.Millisecond)
					p.SetHook(func(ev redistest.Event) redistest.Action {
						if ev.Stage == redistest.OnReply && harness.Script(ev.Cmd) == "load publish" {
							return act
						}
						return redistest.Pass
					})
					close(gate)
					at := time.Now()
					faultWant(t, "who loads", "old", leads)
					if took := time.Since(at); took > time.Second+faultLate {
						t.Errorf("Do returned %v after the load", took)
					}
					r := harness.Got(t, 20*time.Second, "who joined", joins)
					switch {
					case name == "fail" && !errors.Is(r.err, leasehold.ErrUnavailable):
						t.Errorf("who joined got %q (%v), %v; want ErrUnavailable", r.Value, r.Source, r.err)
					case name != "fail" && r.err != nil:
						t.Errorf("who joined got %v; want a value", r.err)
					}
					t.Logf("Do returned after %v; who joined got %q (%v), %v", time.Since(at), r.Value, r.Source, r.err)
					p.SetHook(nil)
				})
			}
		}
	})
}
