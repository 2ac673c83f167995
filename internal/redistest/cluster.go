package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is three primaries with a replica each, on 127.0.0.1. A primary
// that is killed is replaced after about two and a half seconds.
type Cluster struct {
	Nodes []*Server // the first three began as primaries, the others as their replicas, in order

	tb testing.TB
}

// StartCluster starts a Cluster for this test alone. It takes about two
// seconds, most of which new primaries wait before they accept writes.
func StartCluster(tb testing.TB, v Version) *Cluster {
	tb.Helper()
	c := StartPatientCluster(tb, v)
	for _, node := range c.Nodes {
		node.args = append(slices.Clone(node.args), "--cluster-node-timeout", haste)
		Require(tb, node.do("CONFIG", "SET", "cluster-node-timeout", haste), nil, "start a cluster of %s: %v", v)
	}
	return c
}

// StartPatientCluster is StartCluster for a test that kills no node: none is replaced
// because it stands still, on a busy machine or because the test pauses it.
func StartPatientCluster(tb testing.TB, v Version) *Cluster {
	tb.Helper()
	return &Cluster{own(tb, "a cluster", v, startFleet).handles(tb), tb}
}

func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Client makes a client that is closed at the end of the test.
func (c *Cluster) Client(mod ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	opt := &redis.ClusterOptions{Addrs: c.Addrs()}
	for _, m := range mod {
		m(opt)
	}
	rdb := redis.NewClusterClient(opt)
	c.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// NodeFor returns the primary that serves key now. During a failover it waits until there is one.
func (c *Cluster) NodeFor(key string) *Server {
	c.tb.Helper()
	return first(c.tb, c.Nodes, fmt.Sprintf("a primary that serves %q", key), func(node *Server) bool { return node.serves(key) })
}

// first returns the first node that is as wanted, and waits until there is one.
func first(tb testing.TB, nodes []*Server, what string, is func(node *Server) bool) *Server {
	tb.Helper()
	at := -1
	Require(tb, await(what, func() bool { at = slices.IndexFunc(nodes, is); return at >= 0 }), nil, "%v")
	return nodes[at]
}

// ReplicaOf returns the first running replica that follows primary, and waits until there is one.
func (c *Cluster) ReplicaOf(primary *Server) *Server {
	c.tb.Helper()
	return first(c.tb, c.Nodes, "a replica of "+primary.Addr(), func(node *Server) bool {
		return node.running() && strings.Contains(node.info("replication"), fmt.Sprintf("\r\nmaster_port:%d\r\n", primary.port))
	})
}

// serves reports whether the node is a primary that accepts writes to key. The node itself is asked: a primary that
// was replaced while it was away believes in itself for no longer than it takes to reach the others.
func (in *instance) serves(key string) bool {
	// Asking for a key that is not there writes nothing, and a node that is a
	// replica, or not responsible, or in a failed cluster refuses.
	return in.running() && in.says("EVAL", `return redis.call('EXISTS', KEYS[1])`, 1, key) != "" &&
		strings.Contains(in.info("replication"), "role:master")
}

// fleet is several servers.
type fleet []*instance

func (f fleet) servers() []*instance { return f }

func (f fleet) handles(tb testing.TB) (all []*Server) {
	for _, node := range f {
		all = append(all, node.handle(tb))
	}
	return all
}

func (f fleet) stop() {
	var all sync.WaitGroup
	for _, node := range f {
		all.Go(node.stop)
	}
	all.Wait()
}

const primaries = 3

// After so many milliseconds without an answer a node of a Cluster is replaced. With the first, one that is
// merely slow on a busy machine would be too, and writes be lost: so it counts neither while a Cluster
// starts, nor in a shared or patient one, where nobody kills a node.
const haste, patience = "1000", "60000"

var clusterArgs = []string{
	"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", patience,
	"--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
	"--repl-diskless-sync-delay", "0",
}

func startFleet(v Version) (f fleet, err error) {
	err = onFreePort(func() error {
		f.stop()
		f, err = tryFleet(v)
		return err
	})
	return f, err
}

func tryFleet(v Version) (f fleet, err error) {
	for range 2 * primaries {
		dir, err := newFolder(v.Name)
		if err != nil {
			return f, err
		}
		f = append(f, &instance{version: v, dir: dir, args: clusterArgs, port: freePort()})
	}
	errs := make([]error, len(f))
	var wg sync.WaitGroup
	for i, node := range f {
		wg.Go(func() {
			if errs[i] = os.WriteFile(filepath.Join(node.dir, "nodes.conf"), f.topology(i), 0o600); errs[i] == nil {
				errs[i] = node.launch()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return f, err
	}
	var missing string
	if err := await("the cluster to be ready", func() bool { missing = f.missing(); return missing == "" }); err != nil {
		return f, fmt.Errorf("%w: %s", err, missing)
	}
	return f, nil
}

// topology is the file in which node i remembers the cluster. Servers that
// find each other in it need no introduction: they start as a cluster that had
// been there before, without the seconds that gossip takes to build one.
func (f fleet) topology(self int) []byte {
	var b strings.Builder
	for i, node := range f {
		flags, primary, epoch, slots := "master", "-", i+1, ""
		if i < primaries {
			slots = fmt.Sprintf(" %d-%d", i*16384/primaries, (i+1)*16384/primaries-1)
		} else {
			flags, primary, epoch = "slave", nodeID(i-primaries), i-primaries+1
		}
		if i == self {
			flags = "myself," + flags
		}
		shard := ""
		if node.version.AtLeast(7, 2) {
			// Without it the nodes agree on one after a second or two, and SPUBLISH ends
			// a server that is not in its own shard by then.
			shard = ",,shard-id=" + nodeID(100+i%primaries)
		}
		fmt.Fprintf(&b, "%s 127.0.0.1:%d@%d%s %s %s 0 0 %d connected%s\n",
			nodeID(i), node.port, node.port+10000, shard, flags, primary, epoch, slots)
	}
	fmt.Fprintf(&b, "vars currentEpoch %d lastVoteEpoch 0\n", primaries)
	return []byte(b.String())
}

func nodeID(i int) string { return fmt.Sprintf("%040x", i+1) }

// missing is what is still to come until every node sees the whole cluster well and every replica
// follows its primary: before that a failover would not come about.
func (f fleet) missing() string {
	for i, node := range f {
		state, nodes, replication := node.says("CLUSTER", "INFO"), node.says("CLUSTER", "NODES"), node.info("replication")
		switch {
		case !strings.Contains(state, "cluster_state:ok"):
			return fmt.Sprintf("node %d: %s", i, state)
		case nodes == "" || strings.Contains(nodes, "fail") || strings.Contains(nodes, "disconnected"):
			return fmt.Sprintf("node %d: %s", i, nodes)
		case i < primaries && !strings.Contains(replication, "connected_slaves:1"),
			i >= primaries && !strings.Contains(replication, "master_link_status:up"):
			return fmt.Sprintf("node %d: %s", i, replication)
		}
	}
	return ""
}

// client makes a client for the harness itself.
func (in *instance) client(patience time.Duration) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: in.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1, DialTimeout: patience, ReadTimeout: patience,
	})
}

// says is what the server answers within a second: nothing where that is an error, or comes later.
func (in *instance) says(args ...any) string {
	rdb := in.client(time.Second)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	v, err := rdb.Do(ctx, args...).Result()
	if err != nil {
		return ""
	}
	return fmt.Sprint(v)
}

func (in *instance) info(section string) string { return in.says("INFO", section) }

// do is one command of the harness itself, which must be done, however busy the machine is.
func (in *instance) do(args ...any) error {
	rdb := in.client(startTimeout)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return rdb.Do(ctx, args...).Err()
}

// SlotMove is a live move of one slot to another primary, in steps, each of which leaves clients in another
// situation: after BeginMove keys that are not there are asked for at the target (ASK), after MoveKeys all of
// them are, and after Finish the target is the owner (MOVED).
type SlotMove struct {
	c        *Cluster
	slot     int64
	from, to *Server
}

// BeginMove opens the slot of key for a move to another primary. The Cluster must be the test's own.
func (c *Cluster) BeginMove(key string, to *Server) *SlotMove {
	c.tb.Helper()
	from := c.NodeFor(key)
	if !from.mine("BeginMove") {
		c.tb.FailNow()
	}
	m := &SlotMove{c: c, from: from, to: to}
	m.on(from, func(ctx context.Context, rdb *redis.Client) (err error) {
		m.slot, err = rdb.ClusterKeySlot(ctx, key).Result()
		return err
	})
	m.setSlot(to, "IMPORTING", m.id(from))
	m.setSlot(from, "MIGRATING", m.id(to))
	return m
}

// MoveKeys moves the keys that the slot holds now.
func (m *SlotMove) MoveKeys() {
	m.c.tb.Helper()
	m.on(m.from, func(ctx context.Context, rdb *redis.Client) error {
		for {
			keys, err := rdb.ClusterGetKeysInSlot(ctx, int(m.slot), 100).Result()
			if err != nil || len(keys) == 0 {
				return err
			}
			migrate := []any{"MIGRATE", "127.0.0.1", strconv.Itoa(m.to.port), "", "0", "5000", "KEYS"}
			for _, key := range keys {
				migrate = append(migrate, key)
			}
			if err := rdb.Do(ctx, migrate...).Err(); err != nil {
				return err
			}
		}
	})
}

// Finish gives the slot to the target. The keys must have been moved. Target
// first: for a moment both nodes answer for it, rather than none.
func (m *SlotMove) Finish() {
	m.c.tb.Helper()
	id := m.id(m.to)
	m.setSlot(m.to, "NODE", id)
	m.setSlot(m.from, "NODE", id)
}

// MoveSlot moves the slot of key, and what it holds, to another primary.
func (c *Cluster) MoveSlot(key string, to *Server) {
	c.tb.Helper()
	m := c.BeginMove(key, to)
	m.MoveKeys()
	m.Finish()
}

func (m *SlotMove) setSlot(node *Server, state, id string) {
	m.c.tb.Helper()
	m.on(node, func(ctx context.Context, rdb *redis.Client) error {
		return rdb.Do(ctx, "CLUSTER", "SETSLOT", m.slot, state, id).Err()
	})
}

func (m *SlotMove) id(node *Server) (id string) {
	m.c.tb.Helper()
	m.on(node, func(ctx context.Context, rdb *redis.Client) (err error) {
		id, err = rdb.Do(ctx, "CLUSTER", "MYID").Text()
		return err
	})
	return id
}

func (m *SlotMove) on(node *Server, do func(context.Context, *redis.Client) error) {
	m.c.tb.Helper()
	rdb := node.client(startTimeout)
	defer rdb.Close()
	Require(m.c.tb, do(m.c.tb.Context(), rdb), nil, "move slot %d from %s to %s: %v", m.slot, m.from.Addr(), m.to.Addr())
}
