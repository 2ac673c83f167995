package call

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// halves is keys of one node of a Cluster, and as many of the others.
func halves(cluster *redistest.Cluster, bad *redistest.Server, n int) (sick, well []string) {
	for i := 0; len(sick) < n || len(well) < n; i++ {
		key := fmt.Sprint("half", i)
		if cluster.NodeFor(key) == bad {
			sick = append(sick, key)
		} else {
			well = append(well, key)
		}
	}
	return sick[:n], well[:n]
}

func TestNodeThatHangsHoldsUpNoOthersCalls(t *testing.T) {
	redistest.NeedServers(t)
	t.Parallel()
	cluster := redistest.StartPatientCluster(t, redistest.Newest(t))
	bad := cluster.Nodes[0]
	sick, well := halves(cluster, bad, 40)
	rdb := cluster.Client(func(o *redis.ClusterOptions) { o.ReadTimeout = 5 * time.Second })
	clients := map[string]redis.UniversalClient{
		"bare":     rdb,
		"wrapped":  struct{ redis.UniversalClient }{rdb},
		"embedded": struct{ *redis.ClusterClient }{rdb},
	}
	ready := map[string]*Client{}
	for name, rdb := range clients {
		ready[name] = newReady(t, rdb)
		for i, key := range []string{sick[0], well[0]} { // teaches the script
			reply, err := ready[name].Do(context.Background(), echoed(key, i))
			wantEcho(t, i, reply, err)
		}
	}
	bad.Pause()
	for name, c := range ready {
		t.Run(name, func(t *testing.T) {
			var hanging, others sync.WaitGroup
			began := time.Now()
			for i := range well {
				hanging.Go(func() { _, _ = c.Do(context.Background(), echoed(sick[i], i)) })
				others.Go(func() {
					reply, err := c.Do(context.Background(), echoed(well[i], i))
					wantEcho(t, i, reply, err)
				})
			}
			// One pipeline of both: the well calls get theirs while the sick ones wait.
			var answered sync.WaitGroup
			var calls []*Call
			for i := range well {
				one, other := echoed(well[i], i), echoed(sick[i], i)
				answered.Add(1)
				one.Done = func(reply []int64, err error) { wantEcho(t, i, reply, err); answered.Done() }
				calls = append(calls, one, other)
			}
			hanging.Go(func() { c.Send(context.Background(), calls) })
			others.Wait()
			answered.Wait()
			redistest.AtMost(t, time.Since(began), 3*time.Second, "calls of nodes that are well took %v")
			hanging.Wait()
			redistest.AtMost(t, time.Since(began), Bound+7*time.Second, "calls of the node that hangs took %v")
		})
	}
	bad.Resume()
}

// A Cluster that cannot be reached delays nobody beyond the caller's own ctx, and Node and Send's caller not at all.
func TestClusterThatCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hole := hangingDialer{hangs: true}
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"192.0.2.1:6379", "192.0.2.2:6379"}, Dialer: hole.dial})
		defer rdb.Close()
		c := redistest.Must(NewClient(rdb))(t)
		began := time.Now()
		redistest.Expect(t, c.Node("k"), "?", "the node is %q; want none that is known")
		redistest.Expect(t, time.Since(began), 0, "Node took %v")
		const patience = 200 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := c.Do(ctx, echoed("k", 1))
		if took := time.Since(began); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) || took > patience {
			t.Errorf("Do returned %v after %v; want ctx's error, unsent, after %v", err, took, patience)
		}
		began = time.Now()
		var done sync.WaitGroup
		for i := range 50 {
			done.Go(func() {
				_, err := c.Do(t.Context(), echoed(fmt.Sprint("k", i), 1))
				if !errors.Is(err, ErrNotSent) || Classify(err) != NotNow || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, class %v; want that it was not sent", err, Classify(err))
				}
			})
		}
		done.Wait()
		redistest.AtMost(t, time.Since(began), Bound, "calls without a deadline took %v")
		letDialsEnd()
	})
}

// Node does not block where the topology was known and the Cluster hangs.
func TestNodeNeverBlocks(t *testing.T) {
	redistest.NeedServers(t)
	t.Parallel()
	cluster := redistest.StartPatientCluster(t, redistest.Newest(t))
	c := newReady(t, cluster.Client())
	want := c.Node("k")
	redistest.Check(t, want == cluster.NodeFor("k").Addr(), "the node is %q; want %q", want, cluster.NodeFor("k").Addr())
	for _, node := range cluster.Nodes {
		node.Pause()
		defer node.Resume()
	}
	c.Notice(net.ErrClosed) // a reload is under way
	began := time.Now()
	for range 100 {
		redistest.Expect(t, c.Node("k"), want, "the node is %q")
	}
	redistest.AtMost(t, time.Since(began), time.Second, "Node took %v")
}
