package outages

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The handles of these crowds have different LocalFor: strict order, and leases that
// serve turn after turn of a process. What is promised holds all the same.
var mixedLocalFor = []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond}

// Connections are cut and replies are lost, all the time.
func TestLocalTurnsOnABadNetwork(t *testing.T) {
	t.Parallel()
	srv := redistest.StartServer(t, redistest.Newest(t))
	var proxies []*redistest.Proxy
	var mu sync.Mutex // guards what follows
	lost, random := 0, rand.New(rand.NewPCG(redistest.Seed(t), 2))
	c := newCrowdOf(t, func() redis.UniversalClient {
		p := redistest.NewProxy(t, srv.Addr())
		p.SetHook(func(ev redistest.Event) redistest.Action {
			mu.Lock()
			defer mu.Unlock()
			if ev.Stage != redistest.OnReply || random.IntN(200) > 0 {
				return redistest.Pass
			}
			lost++
			return redistest.Close
		})
		proxies = append(proxies, p)
		return p.Client()
	}, mixedLocalFor...)
	const cuts = 200
	for range cuts {
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		p := proxies[random.IntN(len(proxies))]
		mu.Unlock()
		p.CloseAll()
	}
	for _, p := range proxies {
		p.SetHook(nil)
	}
	c.recovered(time.Now())
	t.Logf("%d cuts, %d replies lost", cuts, lost)
	c.unharmed()
	c.takenInTurn()
}

// The server is killed three times, and comes back with what it had confirmed.
func TestLocalTurnsWhileTheServerIsKilled(t *testing.T) {
	t.Parallel()
	srv := redistest.StartServer(t, redistest.Newest(t), "--appendonly", "yes", "--appendfsync", "always")
	c := newCrowdOf(t, clientsOf(srv), mixedLocalFor...)
	for range 3 {
		c.work()
		srv.Kill()
		time.Sleep(50 * time.Millisecond)
		srv.Restart()
		c.recovered(time.Now())
	}
	c.work()
	c.unharmed()
	c.takenInTurn()
}

// The server is stopped for longer than leases last.
func TestLocalTurnsWhileTheServerIsStopped(t *testing.T) {
	t.Parallel()
	srv := redistest.StartServer(t, redistest.Newest(t))
	c := newCrowdOf(t, clientsOf(srv), mixedLocalFor...)
	for range 2 {
		c.work()
		srv.Pause()
		time.Sleep(ttl + ttl/2) // less than a client waits for an answer
		srv.Resume()
		c.recovered(time.Now())
	}
	c.work()
	c.unharmed()
	c.takenInTurn()
}

// A replica that has heard nothing for a while is promoted. Leases that it does not know
// of may serve turns for LocalFor yet, beside the next owner's; the guard refuses what
// they write after it.
func TestLocalTurnsThroughAFailover(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.StartPair(t, redistest.Newest(t))
	var current atomic.Pointer[redistest.Server]
	current.Store(primary)
	c := newCrowdOf(t, func() redis.UniversalClient {
		return primary.Client(func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, current.Load().Addr())
			}
		})
	}, mixedLocalFor...)
	c.work()
	follower := replica.Client()
	if err := follower.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	c.work()
	primary.Kill()
	if err := follower.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	current.Store(replica)
	c.recovered(time.Now())
	c.work()
	c.stop()
	c.takenInTurn()
	c.sameLeaseIsOne()
	c.check()
}

// The sentinels put a replica in the place of a primary that was killed. What the replica
// had not heard of is lost, as in TestLocalTurnsThroughAFailover.
func TestLocalTurnsWhileSentinelsSwitchOver(t *testing.T) {
	t.Parallel()
	x := redistest.StartSentinel(t, redistest.Newest(t))
	old := x.Primary()
	c := newCrowdOf(t, func() redis.UniversalClient { return x.FailoverClient() }, mixedLocalFor...)
	c.work()
	old.Kill()
	c.switchedOver(x, old)
	c.recovered(time.Now())
	c.work()
	c.stop()
	c.takenInTurn()
	c.sameLeaseIsOne()
	c.check()
}

// takenInTurn fails where no lease served more than one turn.
func (c *crowd) takenInTurn() {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	leases := map[string]bool{}
	for _, t := range c.locks {
		leases[t.lease] = true
	}
	c.Logf("%d turns of %d leases", len(c.locks), len(leases))
	if len(leases) == len(c.locks) {
		c.Error("every turn had a lease of its own")
	}
}

// sameLeaseIsOne gives all turns of a lease that overlap the failover the time at which
// the lease's first turn was asked for: tokens rise from lease to lease.
func (c *crowd) sameLeaseIsOne() {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := map[string]time.Time{}
	for _, t := range c.locks {
		if at, ok := first[t.lease]; !ok || t.called.Before(at) {
			first[t.lease] = t.called
		}
	}
	for i := range c.locks {
		c.locks[i].called = first[c.locks[i].lease]
	}
}
