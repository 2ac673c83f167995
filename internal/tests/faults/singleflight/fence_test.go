package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// Somebody sets the fence of a cached value by hand. It is loaded with a token that rises, or
// the call ends with an error that names the key and the value, and leaves the fence as it was.
func TestFaultFenceSetByHand(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		ctx := t.Context()
		s := newFaultSite(t, target.Client(t))
		g := s.group(target.Client(t))
		warmUp(t, g)
		fence := s.Part("fence")
		for _, c := range []struct {
			value string
			spent bool
		}{
			{"9007199254740991", true},
			{"9007199254740992", true},
			{"9223372036854775807", true},
			{"1e300", true},
			{"inf", true},
			{"nan", false},
			{"-nan", false},
			{"text", false},
			{"", false},
			{"-1", false},
			{"-inf", false},
			{"9007199254740990", false},
			{"4000000000000000.5", false},
		} {
			if target.Kind == redistest.KindMini && strings.ContainsAny(c.value, "ei") && c.value != "text" {
				continue // its Lua does not read these as numbers
			}
			redistest.WantErr(t, s.RDB.Set(ctx, fence, c.value, 0).Err())
			loads := 0
			v, err := g.Do(ctx, s.Key, func(context.Context) (string, error) { loads++; return "value", nil })
			if !c.spent {
				redistest.Check(t, err == nil && v == "value" && loads == 1, "do with %q: %q, %v, %d loads", c.value, v, err, loads)
				redistest.WantErr(t, g.Invalidate(ctx, s.Key))
				continue
			}
			saysSpent(t, "do", err, fence, c.value)
			now := s.RDB.Get(ctx, fence).Val()
			redistest.Check(t, now == c.value && loads == 0, "with %q: %d loads, and the fence is now %q", c.value, loads, now)
		}
	})
}

func saysSpent(tb testing.TB, what string, err error, key, value string) {
	tb.Helper()
	if text := fmt.Sprint(err); !errors.Is(err, leasehold.ErrUnavailable) || !strings.Contains(text, key) || !strings.Contains(text, value) {
		tb.Errorf("%s: %v; want ErrUnavailable that names %s and %s", what, err, key, value)
	}
}

// The fence is set by hand while a load runs and another process waits for it. The load ends
// as usual, and the waiter gets its value, or loads, or an error that names the key.
func TestFaultFenceSetByHandDuringALoad(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		for _, value := range []string{"9007199254740993", "nan", "-7", "text"} {
			t.Run(value, func(t *testing.T) {
				t.Parallel()
				ctx := context.Background()
				s := newFaultSite(t, target.Client(t))
				loader, waiter := s.group(target.Client(t)), s.group(target.Client(t))
				began, finish := make(chan struct{}), make(chan struct{})
				first := harness.Go(func() (string, error) {
					return loader.Do(ctx, s.Key, func(context.Context) (string, error) {
						close(began)
						<-finish
						return "value", nil
					})
				})
				<-began
				second := harness.Go(func() (string, error) { return waiter.Do(ctx, s.Key, loaderOf("value")) })
				s.WaitQueued(1)
				redistest.WantErr(t, s.RDB.Set(ctx, s.Part("fence"), value, 0).Err())
				time.Sleep(life.AskEvery + 100*time.Millisecond) // the waiter asks meanwhile
				close(finish)
				if r := harness.Got(t, 10*time.Second, "the load", first); r.Err != nil || r.Value != "value" {
					t.Errorf("the load: %q, %v", r.Value, r.Err)
				}
				r := harness.Got(t, 10*time.Second, "the waiter", second)
				if r.Err != nil {
					saysSpent(t, "the waiter", r.Err, s.Part("fence"), value)
				} else if r.Value != "value" {
					t.Errorf("the waiter: %q", r.Value)
				}
				s.RDB.Del(ctx, s.Part("fence"))
				s.clean(10 * time.Second)
			})
		}
	})
}
