package semaphore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

type (
	wrappedUniversal struct{ redis.UniversalClient }
	wrappedCluster   struct{ *redis.ClusterClient }
	unwrapping       struct{ hidden }
	hidden           struct{ redis.UniversalClient }
)

func (u unwrapping) Unwrap() redis.UniversalClient { return u.hidden.UniversalClient }

// One node of a Cluster is stopped for 8 s, and replaced: leases whose keys other
// nodes have are kept, and keys of other nodes are served, whatever is around the
// client.
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

// leasesOutliveASickNode reports whether the run counts: whether the healthy nodes answered
// all the time.
func leasesOutliveASickNode(t *testing.T) bool {
	c := redistest.StartCluster(t, redistest.NeedServers(t)[0])
	clients := map[string]redis.UniversalClient{
		"bare":              c.Client(),
		"wrapped universal": wrappedUniversal{c.Client()},
		"wrapped cluster":   wrappedCluster{c.Client()},
		"wrapped twice":     wrappedUniversal{wrappedCluster{c.Client()}},
		"Unwrap":            unwrapping{hidden{c.Client()}},
	}
	const leases, ttl = 20, 3 * time.Second
	type holding struct {
		name   string
		s      *site
		h      *semaphore.Semaphore
		leases []*semaphore.Lease
	}
	var all []*holding
	for name, rdb := range clients {
		s := newSite(t, c.Client())
		s.Family += name
		x := &holding{name: name, s: s, h: s.handle(rdb, semaphore.Config{Limit: 1, TTL: ttl})}
		for i := range leases {
			l := redistest.Must(x.h.Acquire(t.Context(), fmt.Sprint(i)))(t)
			x.leases = append(x.leases, l)
		}
		all = append(all, x)
	}
	sick := c.NodeFor(all[0].s.Part("holders"))
	healthy := map[*holding][]*semaphore.Lease{}
	for _, x := range all {
		for _, l := range x.leases {
			if c.NodeFor(x.s.On(t, l.Key()).Part("holders")) != sick {
				healthy[x] = append(healthy[x], l)
			}
		}
		redistest.CheckNow(t, len(healthy[x]) != 0 && len(healthy[x]) != leases, "%d of %d leases are on healthy nodes", len(healthy[x]), leases)
	}
	quiet := longestSilence(t, c, sick)
	sick.Pause()
	time.Sleep(8 * time.Second)
	// Beside a failure of one node, another one may be cut off for a while on a busy machine:
	// the nodes give each other a second.
	silence := quiet()
	t.Logf("a client of a healthy node alone had no answer for at most %v", silence)
	if silence > time.Second {
		sick.Resume()
		for _, x := range all {
			harness.CloseWithin(t, closeBound, x.h)
		}
		return false
	}
	var wg sync.WaitGroup
	for _, x := range all {
		wg.Go(func() {
			var lost []error
			for _, l := range healthy[x] {
				if why := context.Cause(l.Context()); why != nil {
					lost = append(lost, why)
				}
			}
			if len(lost) > 0 {
				t.Errorf("%s: %d of %d leases of healthy nodes were lost: %v", x.name, len(lost), len(healthy[x]), errors.Join(lost...))
			}
			began := time.Now()
			for _, l := range healthy[x] {
				redistest.Expect(t, l.Release(), nil, "%s: release on a healthy node: %v", x.name)
			}
			redistest.AtMost(t, time.Since(began), harness.Slack, "%s: releases on healthy nodes took %v", x.name)
		})
	}
	wg.Wait()
	sick.Resume()
	for _, x := range all {
		wg.Go(func() { harness.CloseWithin(t, closeBound, x.h) })
	}
	wg.Wait()
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
