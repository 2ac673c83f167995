package faults

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A slot takes longer to move than a load's lease lasts: the lease is kept, where keys are asked for at either node.
func TestLoadInASlotThatMovesSlowly(t *testing.T) {
	if testing.Short() {
		t.Skip("takes five seconds")
	}
	const ttl = time.Second
	c := redistest.StartPatientCluster(t, redistest.Newest(t))
	s := newSite(t, harness.Loads, c.Client())
	g := s.group(c.Client(), func(c *singleflight.Config[string]) { c.LeaseTTL = ttl })
	from, to := c.NodeFor(s.part("holders")), c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	began := time.Now()
	v, err := g.Do(t.Context(), s.key, func(ctx context.Context) (string, error) {
		m := c.BeginMove(s.part("holders"), to)
		for _, step := range []func(){func() {}, m.MoveKeys} {
			step()
			select {
			case <-ctx.Done():
				t.Errorf("the load ended after %v: %v", time.Since(began), context.Cause(ctx))
			case <-time.After(2 * ttl):
			}
		}
		m.Finish()
		return "v", nil
	})
	redistest.Check(t, err == nil && v == "v", "%q, %v", v, err)
}
