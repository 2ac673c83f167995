package singleflight

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// quickTimeouts is a client that notices soon that a server is silent.
func quickTimeouts(o *redis.Options) {
	o.ReadTimeout, o.DialTimeout, o.MaxRetries = 300*time.Millisecond, 300*time.Millisecond, 1
}

// waysToLeave are ways in which Redis can be gone.
var waysToLeave = map[string]func(p *redistest.Proxy){
	"refuses":         func(p *redistest.Proxy) { p.Refuse(true); p.CloseAll() },
	"silent":          func(p *redistest.Proxy) { p.Cut(true, true) },
	"runs no scripts": func(p *redistest.Proxy) { closeInsteadOf(p, "load enter") },
}

// Redis is gone: callers get ErrUnavailable, soon, and at their deadline at the
// latest; the origin is spared. With LoadLocally one call of the loader serves
// all callers of a process. When Redis is back, all is well.
func TestFaultRedisGone(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		for name, gone := range waysToLeave {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newFaultSite(t, target.Client(t))
				p := redistest.NewProxy(t, target.Addr())
				g, local := s.group(p.Client(quickTimeouts)), s.group(p.Client(quickTimeouts), loadLocally)
				warmUp(t, g)
				warmUp(t, local)
				gone(p)
				var loads atomic.Int32
				load := func(context.Context) (string, error) {
					loads.Add(1)
					time.Sleep(100 * time.Millisecond)
					return "value", nil
				}
				began := time.Now()
				if _, err := g.Do(t.Context(), s.Key, load); !errors.Is(err, leasehold.ErrUnavailable) {
					t.Errorf("a call without Redis: %v; want ErrUnavailable", err)
				}
				t.Logf("unavailable after %v", time.Since(began))
				if took := time.Since(began); took > 3*time.Second+harness.Slack {
					t.Errorf("a call without Redis took %v", took)
				}
				if n := loads.Load(); n != 0 {
					t.Errorf("%d loads without Redis; want none", n)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				began = time.Now()
				if _, err := g.Do(ctx, s.Key, load); err == nil {
					t.Error("a call without Redis returned a value")
				}
				if took := time.Since(began); took > time.Second+harness.Slack { // the GET is bounded by the client
					t.Errorf("a call with a deadline of 50 ms took %v", took)
				}
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						if v, err := local.Do(context.Background(), s.Key, load); err != nil || v != "value" {
							t.Errorf("LoadLocally gave %q, %v", v, err)
						}
					})
				}
				all.Wait()
				// Connections are had, and found to be gone, one after the other, so not
				// all callers come in time for the first load.
				if n := loads.Load(); n < 1 || n > 20 {
					t.Errorf("LoadLocally loaded %d times for 100 callers", n)
				}
				t.Logf("LoadLocally loaded %d times for 100 callers", loads.Load())
				p.SetHook(nil)
				p.Refuse(false)
				p.Heal()
				harness.Until(t, 10*time.Second, func() error {
					_, err := g.Do(context.Background(), s.Key, load)
					return err
				})
			})
		}
	})
}

// A server that has become a replica reads, and writes nothing.
func TestFaultReadOnly(t *testing.T) {
	t.Parallel()
	_, replica := redistest.StartPair(t, redistest.Newest(t))
	s := newFaultSite(t, replica.Client())
	g, local := s.group(replica.Client()), s.group(replica.Client(), loadLocally)
	began := time.Now()
	invalidated := make(chan error, 1)
	go func() { invalidated <- g.Invalidate(context.Background(), s.Key) }()
	locally := startFetch(t.Context(), local, s.Key, loaderOf("value"))
	if _, err := g.Do(t.Context(), s.Key, loaderOf("value")); !errors.Is(err, leasehold.ErrUnavailable) {
		t.Errorf("a call to a replica: %v; want ErrUnavailable", err)
	}
	t.Logf("Do said so after %v", time.Since(began))
	if err := harness.Got(t, 10*time.Second, "the Invalidate", invalidated); !errors.Is(err, leasehold.ErrUnavailable) {
		t.Errorf("an Invalidate on a replica: %v; want ErrUnavailable", err)
	}
	t.Logf("Invalidate said so after %v", time.Since(began))
	wantValue(t, "LoadLocally", "value", locally)
	t.Logf("LoadLocally had its value after %v", time.Since(began))
	if took := time.Since(began); took > 5*time.Second+harness.Slack {
		t.Errorf("calls to a replica took %v", took)
	}
}

// Memory runs out during a load: the value is returned to all, not stored, and
// nobody gets an error.
func TestFaultOutOfMemoryDuringALoad(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	g, other := s.group(srv.Client()), s.group(srv.Client())
	warmUp(t, g)
	load, began, gate := oldThenNew()
	leads := startFetch(t.Context(), g, s.Key, load)
	harness.Got(t, 10*time.Second, "the load", began)
	joins, waits := startFetch(t.Context(), g, s.Key, load), startFetch(t.Context(), other, s.Key, load)
	s.WaitQueued(1)
	if err := s.RDB.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	close(gate)
	for who, done := range map[string]<-chan fetchResult{"the loading caller": leads, "the caller that joined": joins, "the waiting caller": waits} {
		wantValue(t, who, "old", done)
	}
	if n := s.RDB.Exists(t.Context(), s.Part("value")).Val(); n != 0 {
		t.Error("the value is stored")
	}
	s.clean(0)
	if err := s.RDB.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	wantValue(t, "the later caller", "new", startFetch(t.Context(), other, s.Key, load))
}

// Scripts are flushed all the time: no error reaches a caller.
func TestFaultScriptFlush(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	groups := []*singleflight.Group[string]{s.group(srv.Client()), s.group(srv.Client())}
	var all sync.WaitGroup
	end := time.Now().Add(harness.Soak(t, 1500*time.Millisecond))
	var calls atomic.Int32
	for i := range 8 {
		all.Go(func() {
			for g := groups[i%2]; time.Now().Before(end); {
				_, err := g.Do(context.Background(), s.Key, func(context.Context) (string, error) {
					time.Sleep(2 * time.Millisecond)
					return "value", nil
				})
				if err == nil && i < 2 {
					err = g.Invalidate(context.Background(), s.Key)
				}
				if err != nil {
					t.Error(err)
				}
				calls.Add(1)
			}
		})
	}
	for time.Now().Before(end) {
		if err := s.RDB.ScriptFlush(t.Context()).Err(); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	all.Wait()
	t.Logf("%d calls", calls.Load())
}
