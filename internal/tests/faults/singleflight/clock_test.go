package singleflight_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A request that the network held back shows a clock of the server's that is
// ahead by as long. What was known before is closer, so that a fresh value isn't
// taken for an old one and loaded again.
func TestFaultSlowRequestDoesNotAgeValues(t *testing.T) {
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const ttl, held = 2 * time.Second, 1500 * time.Millisecond
		s := newFaultSite(t, target.Client(t))
		p := redistest.NewProxy(t, target.Addr())
		g := s.group(p.Client(), func(c *singleflight.Config[string]) { c.TTL = ttl })
		faultWarm(t, g)
		var loads atomic.Int32
		load := func(context.Context) (string, error) { loads.Add(1); return "value", nil }
		enter := p.HoldRequest(faultDoes("load enter"), 1)
		time.AfterFunc(held, enter.Release)
		if _, err := g.Do(t.Context(), s.key, load); err != nil {
			t.Fatal(err)
		}
		for published := time.Now(); time.Since(published) < ttl-faultLate; time.Sleep(10 * time.Millisecond) {
			if _, err := g.Do(t.Context(), s.key, load); err != nil {
				t.Fatal(err)
			}
			if loads.Load() > 1 {
				t.Fatalf("a value with a TTL of %v was loaded again %v after it was published", ttl, time.Since(published))
			}
		}
	})
}

// faultLate is how much later a busy machine may see what has happened.
const faultLate = 300 * time.Millisecond
