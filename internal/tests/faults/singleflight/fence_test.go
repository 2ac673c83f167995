package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
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
