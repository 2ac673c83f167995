package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// sentOverBus counts the messages of PUBLISH that the nodes of a Cluster have sent to each other so far.
func sentOverBus(t *testing.T, c *redistest.Cluster) (sum int) {
	t.Helper()
	for _, node := range c.Nodes {
		info := redistest.Must(node.Client().ClusterInfo(t.Context()).Result())(t)
		for line := range strings.Lines(info) {
			if text, ok := strings.CutPrefix(line, "cluster_stats_messages_publish_sent:"); ok {
				sum += redistest.Must(strconv.Atoi(strings.TrimSpace(text)))(t)
			}
		}
	}
	return sum
}

// keysOnEachPrimary is n keys for each of a Cluster's primaries.
func keysOnEachPrimary(s *site, c *redistest.Cluster, n int) (all []string) {
	s.Helper()
	count := map[string]int{}
	for i := 0; len(all) < 3*n; i++ {
		key := fmt.Sprint("k", i)
		node := c.NodeFor(harness.Part(harness.Locks, s.family, key, "holders")).Addr()
		if count[node] < n {
			count[node]++
			all = append(all, key)
		}
	}
	return all
}

// A message on a Cluster stays in the shard of its key: hand-overs send nothing to the
// other nodes, wherever the processes happen to be connected.
func TestHandOversStayInTheShard(t *testing.T) {
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.String(), func(t *testing.T) {
			c := redistest.StartPatientCluster(t, v)
			s := newSite(t, harness.Locks, c.Client())
			two := [2]*mutex.Mutex{}
			for i := range two {
				rdb := c.Client(func(o *redis.ClusterOptions) { o.Addrs = o.Addrs[i : i+1] })
				two[i] = s.mutex(rdb, mutex.Config{})
			}
			before := sentOverBus(t, c)
			for _, key := range keysOnEachPrimary(s, c, 2) {
				ctx, cancel := context.WithTimeout(t.Context(), redistest.Soon) // by asking they take a minute
				defer cancel()
				var all sync.WaitGroup
				for _, m := range two {
					all.Go(func() {
						for range 20 {
							err := m.Do(ctx, key, func(context.Context, uint64) error { return nil })
							redistest.Check(t, err == nil || ctx.Err() != nil, "a turn: %v", err)
						}
					})
				}
				all.Wait()
				redistest.CheckNow(t, ctx.Err() == nil, "the turns of %s take too long", key)
			}
			redistest.Expect(t, sentOverBus(t, c)-before, 0, "the turns sent %d messages over the bus")
			if strings.HasPrefix(v.Name, "valkey") && !v.AtLeast(8, 1) {
				return // does not count the messages that it sends in their short form
			}
			const control = 10
			for range control {
				redistest.WantErr(t, s.RDB.Publish(t.Context(), s.family, "over the bus").Err())
			}
			redistest.AtLeast(t, sentOverBus(t, c)-before, control, "%d messages by PUBLISH were counted as %d", control)
		})
	}
}

// The slot of a key moves while a process waits for the lock, and again: it is told of its grant by a message from
// where the slot is then, which asking every 1.5 s would not be in time for.
func TestGrantAfterASlotMoved(t *testing.T) {
	c := redistest.StartPatientCluster(t, redistest.Newest(t))
	s := newSite(t, harness.Locks, c.Client())
	h, h2 := s.mutex(c.Client(), mutex.Config{}), s.mutex(c.Client(), mutex.Config{})
	quick := 0
	const moves = 5
	for range moves {
		l := redistest.Must(h.Lock(t.Context(), s.key))(t)
		waiter := s.locking(h2)
		s.waitQueued(1)
		from := c.NodeFor(s.part("holders"))
		for _, to := range c.Nodes[:3] {
			if to.Addr() != from.Addr() {
				c.MoveSlot(s.part("holders"), to)
				break
			}
		}
		// Its client has heard of the move, and subscribed there.
		to := c.NodeFor(s.part("holders")).Client()
		redistest.Eventually(t, "a subscription there", func() bool { return len(to.PubSubShardChannels(t.Context(), "*").Val()) > 0 })
		began := time.Now()
		redistest.WantErr(t, l.Unlock())
		next := waiter.Got()
		took := time.Since(began)
		t.Logf("granted %v after the unlock", took)
		if took < 300*time.Millisecond {
			quick++
		}
		redistest.WantErr(t, next.Unlock())
	}
	redistest.Check(t, quick >= 3, "%d of %d grants came by a message", quick, moves)
}

// A Cluster cannot be reached when it is first asked for its topology. A caller returns when its
// ctx ends, and so do others that come meanwhile.
func TestCtxEndsWhileAClusterIsLookedFor(t *testing.T) {
	redistest.NeedServers(t)
	for name, loses := range map[string]bool{"packets are dropped": true, "nobody listens": false} {
		t.Run(name, func(t *testing.T) {
			dial, healed := new(net.Dialer).DialContext, make(chan struct{})
			t.Cleanup(func() { close(healed) })
			if loses {
				dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
					select {
					case <-ctx.Done():
					case <-healed:
					}
					return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
				}
			}
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}, Dialer: dial})
			t.Cleanup(func() { _ = rdb.Close() })
			m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "n"}))(t)
			var all sync.WaitGroup
			const patience = 200 * time.Millisecond
			for i := range 20 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					began := time.Now()
					_, err := m.Lock(ctx, fmt.Sprint(i))
					redistest.AtMost(t, time.Since(began), patience+harness.Slack, "a caller with %v returned after %v", patience)
					redistest.Check(t, errors.Is(err, context.DeadlineExceeded), "a caller with %v: %v", patience, err)
				})
			}
			all.Wait()
			began := time.Now()
			_, err := m.Lock(t.Context(), "k")
			redistest.WantErr(t, err, leasehold.ErrUnavailable)
			// 3 s of tries, of which the last may take 3 s for a connection and the read timeout.
			redistest.AtMost(t, time.Since(began), 6*time.Second+rdb.Options().ReadTimeout+harness.Slack, "without a deadline: %v")
			began = time.Now()
			harness.CloseWithin(t, redistest.Soon, m)
			redistest.AtMost(t, time.Since(began), 2*harness.Slack, "Close took %v with nothing to give back")
		})
	}
}

// A slot moves to a node that hangs, and its old node says ASK: the leases of other slots of the old node are kept,
// and given back without a wait.
func TestLeasesBesideASlotThatMovesToAHungNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	const ttl = 3 * time.Second
	c := redistest.StartPatientCluster(t, redistest.Newest(t))
	s := newSite(t, harness.Locks, c.Client())
	h := s.mutex(c.Client(), mutex.Config{TTL: ttl})
	from, to := c.NodeFor(s.part("holders")), c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	var moved *mutex.Lock
	var beside []*mutex.Lock
	for i := 0; len(beside) < 50; i++ {
		if len(beside) == 25 && moved == nil { // its renewals go with those of the others
			moved = redistest.Must(h.Lock(t.Context(), s.key))(t)
		}
		if on := s.on(t, fmt.Sprint(i)); c.NodeFor(on.part("holders")) == from {
			beside = append(beside, redistest.Must(h.Lock(t.Context(), on.key))(t))
		}
	}
	idle := s.on(t, beside[0].Key())
	redistest.WantErr(t, beside[0].Unlock())
	beside = beside[1:]
	c.BeginMove(s.part("holders"), to).MoveKeys()
	var all sync.WaitGroup
	defer all.Wait()
	ctx, stop := context.WithCancel(t.Context())
	for _, node := range []*redistest.Server{c.ReplicaOf(to), to} {
		node.Pause()
		defer node.Resume()
	}
	defer stop()
	crowd := func(n int, key string) {
		for range n {
			all.Go(func() {
				for ctx.Err() == nil {
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					_ = h.Do(ctx, key, func(context.Context, uint64) error { return nil })
					cancel()
				}
			})
		}
	}
	crowd(8, s.key) // they wait for the node that hangs
	crowd(8, idle.key)
	late := time.Now().Add(2 * ttl) // so the lease has been renewed when all were over
	for _, l := range beside {
		redistest.Eventually(t, "a renewal", func() bool { return l.Context().Err() != nil || l.Deadline().After(late) })
		redistest.Expect(t, context.Cause(l.Context()), nil, "a lease of a healthy node was lost: %v")
	}
	began := time.Now()
	for _, l := range beside {
		redistest.Expect(t, l.Unlock(), nil, "unlock on a healthy node: %v")
	}
	redistest.AtMost(t, time.Since(began), harness.Slack, "unlocks on a healthy node took %v")
	redistest.Check(t, moved.Context().Err() != nil, "the lease at the node that hangs is kept")
}

// While a slot moves, the client library says ASKING before each call, which needs a right of its own.
func TestDocumentedRightsKeepALeaseInASlotThatMoves(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	c := redistest.StartPatientCluster(t, redistest.Newest(t))
	user := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}
	for _, rule := range append(redistest.Must(redistest.DocumentedACL())(t), redistest.Must(redistest.DocumentedClusterACL())(t)...) {
		user = append(user, rule)
	}
	for _, node := range c.Nodes {
		redistest.NoError(t, node.Client().Do(t.Context(), user...).Err())
	}
	rdb := c.Client(func(o *redis.ClusterOptions) { o.Username, o.Password = "app", "secret" })
	h := redistest.Must(mutex.New(rdb, mutex.Config{Name: "f", TTL: ttl}))(t)
	l := redistest.Must(h.Lock(t.Context(), "k"))(t)
	const slot = "leasehold:mtx:{f:k}:holders"
	to := c.Nodes[0]
	if to == c.NodeFor(slot) {
		to = c.Nodes[1]
	}
	move := c.BeginMove(slot, to)
	move.MoveKeys()
	late := time.Now().Add(2 * ttl)
	redistest.Eventually(t, "a renewal", func() bool { return l.Context().Err() != nil || l.Deadline().After(late) })
	redistest.Expect(t, context.Cause(l.Context()), nil, "its lease was lost: %v")
	move.Finish()
	redistest.NoError(t, l.Unlock())
	redistest.NoError(t, h.Close(t.Context()))
}
