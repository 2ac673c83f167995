package outages

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The sentinels put another primary in the place of one that was killed, or that runs and is to be replaced.
func TestSentinelSwitchesOver(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *redistest.Sentinel){
		"killed": func(_ *testing.T, x *redistest.Sentinel) { x.Primary().Kill() },
		"on demand": func(t *testing.T, x *redistest.Sentinel) {
			s := redis.NewSentinelClient(&redis.Options{Addr: x.Sentinels[0].Addr()})
			defer s.Close()
			redistest.WantErr(t, s.Failover(t.Context(), redistest.MasterName).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := redistest.StartSentinel(t, redistest.Newest(t))
			old := x.Primary()
			outlives(t, func() redis.UniversalClient { return x.FailoverClient() }, func(*crowd) {
				begin(t, x)
				harness.Until(t, patience, func() error {
					if x.Primary().Addr() == old.Addr() {
						return errors.New("the primary is the old one")
					}
					return nil
				})
			})
		})
	}
}

// outlives has a crowd at work while another server takes the place of one.
func outlives(t *testing.T, connect func() redis.UniversalClient, switchOver func(c *crowd)) {
	c := newCrowd(t, connect)
	h := c.hold()
	c.work()
	switchOver(c)
	c.recovered(time.Now())
	h.keptOrTold()
	c.work()
	c.check()
}

// The primary of a Cluster that has the lock is killed, and its replica takes over.
func TestClusterPrimaryKilled(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.Newest(t))
	outlives(t, func() redis.UniversalClient { return cluster.Client() }, func(c *crowd) {
		at := time.Now()
		cluster.NodeFor(c.part("mtx", key, "holders")).Kill()
		for _, kind := range []string{"mtx", "sem", "flt"} {
			cluster.NodeFor(c.part(kind, key, "holders"))
		}
		cluster.NodeFor(c.whole("holders"))
		t.Logf("every key has a primary after %v", time.Since(at))
	})
}

// The keys of all packages move from primary to primary while they are used. No
// write is lost, so that nothing else may be, and leases are kept.
func TestSlotsMoveLive(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartPatientCluster(t, redistest.Newest(t))
	c := newCrowd(t, func() redis.UniversalClient { return cluster.Client() })
	h := c.hold()
	moved := 0
	for range 3 {
		c.work()
		for _, slot := range []string{
			c.part("mtx", key, "holders"), c.part("sem", key, "holders"), c.part("flt", key, "holders"),
			c.part("mtx", longKey, "holders"), c.part("sem", longKey, "holders"), c.whole("holders"),
		} {
			from := cluster.NodeFor(slot)
			to := cluster.Nodes[moved%3]
			if to.Addr() == from.Addr() {
				to = cluster.Nodes[(moved+1)%3]
			}
			move := cluster.BeginMove(slot, to)
			time.Sleep(20 * time.Millisecond) // callers meet TRYAGAIN
			move.MoveKeys()
			time.Sleep(20 * time.Millisecond) // ASK
			move.Finish()
			moved++
		}
		c.recovered(time.Now())
	}
	t.Logf("%d slots were moved", moved)
	redistest.Expect(t, h.keptOrTold(), 2, "%d of 2 leases were kept")
	redistest.Expect(t, c.check(), 0, "%d overlaps, without the loss of any write")
}
