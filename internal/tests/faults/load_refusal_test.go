package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// One of the keys in Redis is somebody else's, of another type: calls say so, and nothing is overwritten or deleted,
// nor anything written beside it. A load that meets it at its end returns its value all the same.
func TestFaultKeyOfAnotherType(t *testing.T) {
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		s := newSite(t, harness.Loads, target.Client(t))
		g := s.group(target.Client(t))
		warmUp(t, g)
		for _, part := range keyParts {
			t.Run(part, func(t *testing.T) {
				t.Parallel()
				ctx := context.Background()
				s := s.on(t, part)
				put := func() { redistest.WantErr(t, s.RDB.RPush(ctx, s.part(part), "theirs").Err()) }
				theirs := func(what string) {
					t.Helper()
					all, err := s.RDB.LRange(ctx, s.part(part), 0, -1).Result()
					redistest.Check(t, err == nil && slices.Equal(all, []string{"theirs"}), "%s: %s now holds %v, %v", what, part, all, err)
				}
				put()
				loads := 0
				_, err := g.Do(ctx, s.key, func(context.Context) (string, error) { loads++; return "value", nil })
				redistest.Check(t, errors.Is(err, leasehold.ErrUnavailable) && strings.Contains(fmt.Sprint(err), "WRONGTYPE") && loads == 0,
					"do: %v, with %d loads; want an error that says WRONGTYPE", err, loads)
				theirs("do")
				err = g.Invalidate(ctx, s.key)
				if part == "queue" || part == "alive" {
					// It doesn't touch these.
					redistest.Check(t, err == nil, "invalidate: %v", err)
				} else if !errors.Is(err, leasehold.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "WRONGTYPE") {
					t.Errorf("invalidate: %v; want an error that says WRONGTYPE", err)
				}
				theirs("invalidate")
				for _, other := range keyParts {
					n := s.RDB.Exists(ctx, s.part(other)).Val()
					redistest.Check(t, n == 0 || other == part, "%s was written beside", other)
				}

				s.RDB.Del(ctx, s.part(part))
				r, err := g.Fetch(ctx, s.key, func(context.Context) (string, error) {
					s.RDB.Del(ctx, s.part(part))
					put()
					return "value", nil
				})
				redistest.Check(t, err == nil && r.Value == "value", "a load that met it at its end gave %q, %v", r.Value, err)
				theirs("land")
				s.RDB.Del(ctx, s.part(part))
				redistest.Eventually(t, "the end of the lease that could not be given back", func() bool {
					return redistest.ErrorOf(g.Do(ctx, s.key, loaderOf("value"))) == nil
				})
			})
		}
	})
}

// A server that has become a replica reads, and writes nothing.
func TestFaultReadOnly(t *testing.T) {
	t.Parallel()
	_, replica := redistest.StartPair(t, redistest.Newest(t))
	s := newSite(t, harness.Loads, replica.Client())
	g, local := s.group(replica.Client()), s.group(replica.Client(), loadLocally)
	began := time.Now()
	invalidated := harness.Begin(t, func() error { return g.Invalidate(context.Background(), s.key) })
	locally := s.fetch(local, loaderOf("value"))
	redistest.WantErr(t, redistest.ErrorOf(g.Do(t.Context(), s.key, loaderOf("value"))), leasehold.ErrUnavailable)
	t.Logf("Do said so after %v", time.Since(began))
	redistest.WantErr(t, invalidated.Failed(), leasehold.ErrUnavailable)
	t.Logf("Invalidate said so after %v", time.Since(began))
	wantValue(t, "LoadLocally", "value", locally)
	t.Logf("LoadLocally had its value after %v", time.Since(began))
	redistest.AtMost(t, time.Since(began), 5*time.Second+harness.Slack, "calls to a replica took %v")
}

// Memory runs out during a load: the value is returned to all, not stored, and nobody gets an error.
func TestFaultOutOfMemoryDuringALoad(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newSite(t, harness.Loads, srv.Client())
	g, other := s.group(srv.Client()), s.group(srv.Client())
	warmUp(t, g)
	began, gate := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	load := func(context.Context) (string, error) {
		if calls.Add(1) > 1 {
			return "new", nil
		}
		close(began)
		<-gate
		return "old", nil
	}
	leads := s.fetch(g, load)
	redistest.Get(t, "the load", began)
	joins, waits := s.fetch(g, load), s.fetch(other, load)
	s.waitQueued(1)
	redistest.WantErr(t, s.RDB.ConfigSet(t.Context(), "maxmemory", "1").Err())
	close(gate)
	for who, done := range map[string]*fetching{"the loading caller": leads, "the caller that joined": joins, "the waiting caller": waits} {
		wantValue(t, who, "old", done)
	}
	redistest.Expect(t, s.RDB.Exists(t.Context(), s.part("value")).Val(), 0, "the value is stored")
	s.clean(0)
	redistest.WantErr(t, s.RDB.ConfigSet(t.Context(), "maxmemory", "0").Err())
	wantValue(t, "the later caller", "new", s.fetch(other, load))
}

// Somebody sets the fence of a cached value by hand. It is loaded with a token that rises, or
// the call ends with an error that names the key and the value, and leaves the fence as it was.
func TestFaultFenceSetByHand(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		ctx := t.Context()
		s := newSite(t, harness.Loads, target.Client(t))
		g := s.group(target.Client(t))
		warmUp(t, g)
		fence := s.part("fence")
		spent := []string{"9007199254740991", "9007199254740992", "9223372036854775807", "1e300", "inf"}
		others := []string{"nan", "-nan", "text", "", "-1", "-inf", "9007199254740990", "4000000000000000.5"}
		for _, value := range slices.Concat(spent, others) {
			if target.Kind == redistest.KindMini && strings.ContainsAny(value, "ei") && value != "text" {
				continue // its Lua does not read these as numbers
			}
			redistest.WantErr(t, s.RDB.Set(ctx, fence, value, 0).Err())
			loads := 0
			v, err := g.Do(ctx, s.key, func(context.Context) (string, error) { loads++; return "value", nil })
			if !slices.Contains(spent, value) {
				redistest.Check(t, err == nil && v == "value" && loads == 1, "do with %q: %q, %v, %d loads", value, v, err, loads)
				redistest.WantErr(t, g.Invalidate(ctx, s.key))
				continue
			}
			redistest.WantErr(t, err, leasehold.ErrUnavailable, redistest.Says(fence, value))
			now := s.RDB.Get(ctx, fence).Val()
			redistest.Check(t, now == value && loads == 0, "with %q: %d loads, and the fence is now %q", value, loads, now)
		}
	})
}

// The fence is set by hand while a load runs and another process waits for it. The load ends
// as usual, and the waiter gets its value, or loads, or an error that names the key.
func TestFaultFenceSetByHandDuringALoad(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		for _, value := range []string{"9007199254740993", "nan", "-7", "text"} {
			t.Run(value, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, harness.Loads, target.Client(t))
				began, finish := make(chan struct{}), make(chan struct{})
				first := s.fetch(s.group(target.Client(t)), func(context.Context) (string, error) {
					close(began)
					<-finish
					return "value", nil
				})
				<-began
				second := s.fetch(s.group(target.Client(t)), loaderOf("value"))
				s.waitQueued(1)
				redistest.WantErr(t, s.RDB.Set(t.Context(), s.part("fence"), value, 0).Err())
				time.Sleep(life.AskEvery + 100*time.Millisecond) // the waiter asks meanwhile
				close(finish)
				wantValue(t, "the load", "value", first)
				if second.Within(redistest.Soon, "the waiter").Err == nil {
					wantValue(t, "the waiter", "value", second)
				} else {
					redistest.WantErr(t, second.Err, leasehold.ErrUnavailable, redistest.Says(s.part("fence"), value))
				}
				s.RDB.Del(t.Context(), s.part("fence"))
				s.clean(10 * time.Second)
			})
		}
	})
}
