package singleflight

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A request that the network held back shows a clock of the server's that is ahead by as long. What was known before
// is closer, so that a fresh value isn't taken for an old one and loaded again.
func TestFaultSlowRequestDoesNotAgeValues(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const ttl, held = time.Second, 750 * time.Millisecond
		s := newFaultSite(t, target.Client(t))
		p := redistest.NewProxy(t, target.Addr())
		g := s.group(p.Client(), func(c *singleflight.Config[string]) { c.TTL = ttl })
		warm := time.Now()
		warmUp(t, g)
		inexact := time.Since(warm) // what the group knows of the clock is off by less
		var loads []time.Time       // when each began: calls are made one after the other
		load := func(context.Context) (string, error) { loads = append(loads, time.Now()); return "value", nil }
		enter := p.HoldRequest(harness.Does("load enter"), 1)
		time.AfterFunc(held, enter.Release)
		redistest.Must(g.Do(t.Context(), s.Key, load))(t)
		// The value was published after its load began. It may be loaded again a TTL
		// later, however late this machine makes the next call.
		for len(loads) == 1 && time.Since(loads[0]) < ttl {
			time.Sleep(10 * time.Millisecond)
			redistest.Must(g.Do(t.Context(), s.Key, load))(t)
		}
		if len(loads) > 1 {
			redistest.AtLeast(t, loads[1].Sub(loads[0]), ttl-inexact, "a value with a TTL of %v was loaded again %v after its load began", ttl)
		}
	})
}
