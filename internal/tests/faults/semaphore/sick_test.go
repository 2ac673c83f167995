package semaphore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// One node of a Cluster is stopped for 8 s, and replaced: leases whose keys other
// nodes have are kept, and keys of other nodes are served.
func TestLeasesOfHealthyNodesOutliveASickOne(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	for range 3 {
		if leasesOutliveASickNode(t) {
			return
		}
	}
	t.Error("the healthy nodes did not answer anybody, three times")
}

// leasesOutliveASickNode reports whether the run counts: whether the healthy nodes answered all the time.
func leasesOutliveASickNode(t *testing.T) bool {
	c := redistest.StartCluster(t, redistest.NeedServers(t)[0])
	s := newSite(t, c.Client())
	h := s.handle(c.Client(), semaphore.Config{Limit: 1, TTL: 3 * time.Second})
	defer harness.CloseWithin(t, closeBound, h)
	const leases = 100
	sick := c.NodeFor(s.Part("holders"))
	var healthy []*semaphore.Lease
	for i := range leases {
		l := redistest.Must(h.Acquire(t.Context(), fmt.Sprint(i)))(t)
		if c.NodeFor(s.On(t, l.Key()).Part("holders")) != sick {
			healthy = append(healthy, l)
		}
	}
	redistest.CheckNow(t, len(healthy) != 0 && len(healthy) != leases, "%d of %d leases are on healthy nodes", len(healthy), leases)
	quiet := longestSilence(t, c, sick)
	sick.Pause()
	defer sick.Resume()
	time.Sleep(8 * time.Second)
	// Beside a failure of one node, another one may be cut off for a while on a busy machine:
	// the nodes give each other a second.
	silence := quiet()
	t.Logf("a client of a healthy node alone had no answer for at most %v", silence)
	if silence > time.Second {
		return false
	}
	for _, l := range healthy {
		redistest.Expect(t, context.Cause(l.Context()), nil, "a lease of a healthy node was lost: %v")
	}
	began := time.Now()
	for _, l := range healthy {
		redistest.Expect(t, l.Release(), nil, "release on a healthy node: %v")
	}
	redistest.AtMost(t, time.Since(began), harness.Slack, "releases on healthy nodes took %v")
	return true
}

// longestSilence asks each healthy primary again and again, with a client of its own. What
// it returns ends that, and is the longest time for which one of them gave no answer.
func longestSilence(t *testing.T, c *redistest.Cluster, sick *redistest.Server) (ends func() time.Duration) {
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	longest := make([]time.Duration, len(c.Nodes))
	for i, node := range c.Nodes {
		if node == sick || node.Role() != "master" {
			continue
		}
		key := 0
		for c.NodeFor(fmt.Sprint("control:", key)) != node {
			key++
		}
		rdb := node.Client()
		all.Go(func() {
			answered := time.Now()
			for ctx.Err() == nil {
				err := rdb.Set(t.Context(), fmt.Sprint("control:", key), "x", 0).Err()
				longest[i] = max(longest[i], time.Since(answered))
				if err == nil {
					answered = time.Now()
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return func() time.Duration {
		stop()
		all.Wait()
		return slices.Max(longest)
	}
}
