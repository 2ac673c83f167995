package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// StartPair starts a server and a replica that follows it.
func StartPair(tb testing.TB, v Version, args ...string) (primary, replica *Server) {
	tb.Helper()
	nodes, err := startNodes(v, 1, args...)
	CheckNow(tb, err == nil, "start %s with a replica: %v", v, err)
	for _, node := range nodes {
		tb.Cleanup(node.stop)
	}
	return nodes[0].handle(tb), nodes[1].handle(tb)
}

// Replicated is a primary with replicas, and the network between them.
type Replicated struct {
	Primary  *Server
	Replicas []*Server
	Links    []*Relay // of each replica to the primary
}

// StartReplicated starts a primary with n replicas for this test alone.
func StartReplicated(tb testing.TB, v Version, n int, args ...string) *Replicated {
	tb.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	x := &Replicated{Primary: StartServer(tb, v, args...)}
	for range n {
		link := NewRelay(tb, x.Primary.Addr(), 0)
		host, port, _ := net.SplitHostPort(link.Addr())
		x.Links = append(x.Links, link)
		x.Replicas = append(x.Replicas, StartServer(tb, v, append(args, "--replicaof", host+" "+port)...))
	}
	// A replica confirms once it has acknowledged something, up to a second after it came.
	rdb := x.Primary.Client()
	if err := await("the replicas to confirm", func() bool {
		rdb.Set(context.Background(), "confirmed", "", time.Millisecond)
		return rdb.Wait(context.Background(), n, time.Second).Val() == int64(n)
	}); err != nil {
		tb.Fatal(err)
	}
	return x
}

// Cut cuts all replicas off.
func (x *Replicated) Cut() {
	for _, link := range x.Links {
		link.Cut()
	}
}

// Heal ends a Cut.
func (x *Replicated) Heal() {
	for _, link := range x.Links {
		link.Heal()
	}
}

// startNodes starts a primary and some replicas, and waits until they follow.
func startNodes(v Version, replicas int, args ...string) (nodes []*instance, err error) {
	defer func() {
		if err != nil {
			stopAll(nodes)
		}
	}()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	primary, err := startInstance(v, args...)
	if err != nil {
		return nil, err
	}
	nodes = append(nodes, primary)
	for range replicas {
		replica, err := startInstance(v, append(args, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.port))...)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, replica)
	}
	return nodes, await("the replicas to follow", func() bool {
		for _, replica := range nodes[1:] {
			if !strings.Contains(replica.info("replication"), "master_link_status:up") {
				return false
			}
		}
		return true
	})
}

// Role is what the server says that it is: "master" or "slave", or nothing where it doesn't answer.
func (s *Server) Role() string {
	_, rest, _ := strings.Cut(s.info("replication"), "role:")
	role, _, _ := strings.Cut(rest, "\r\n")
	return role
}

// MasterName is the name under which sentinels know the primary.
const MasterName = "mymaster"

// Sentinel is a primary with two replicas, and three sentinels that replace
// the primary about two and a half seconds after it was killed.
type Sentinel struct {
	Version   Version
	Nodes     []*Server // the first began as the primary
	Sentinels []*Server

	tb testing.TB
}

// watched is the servers of a Sentinel set.
type watched struct {
	version          Version
	nodes, sentinels []*instance
}

// StartSentinel starts such a set for this test alone.
func StartSentinel(tb testing.TB, v Version) *Sentinel {
	tb.Helper()
	w, err := startWatched(v)
	return own(tb, "sentinels", v, w, err).handle(tb)
}

func startWatched(v Version) (w *watched, err error) {
	w = &watched{version: v}
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	if w.nodes, err = startNodes(v, 2); err != nil {
		return w, err
	}
	for range 3 {
		s, err := startSentinel(w.nodes[0])
		if err != nil {
			return w, err
		}
		w.sentinels = append(w.sentinels, s)
	}
	for _, s := range w.sentinels {
		rdb := redis.NewSentinelClient(s.plainOptions())
		defer rdb.Close()
		if err := await("the sentinels to know each other", func() bool {
			others, err1 := rdb.Sentinels(context.Background(), MasterName).Result()
			replicas, err2 := rdb.Replicas(context.Background(), MasterName).Result()
			return err1 == nil && err2 == nil && len(others) == 2 && len(replicas) == 2
		}); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *watched) handle(tb testing.TB) *Sentinel {
	x := &Sentinel{Version: w.version, tb: tb}
	for _, node := range w.nodes {
		x.Nodes = append(x.Nodes, node.handle(tb))
	}
	for _, s := range w.sentinels {
		x.Sentinels = append(x.Sentinels, s.handle(tb))
	}
	return x
}

func (w *watched) stop() { stopAll(slices.Concat(w.sentinels, w.nodes)) }

func startSentinel(primary *instance) (*instance, error) {
	dir, err := newFolder("sentinel")
	if err != nil {
		return nil, err
	}
	in := &instance{version: primary.version, dir: dir, bare: true}
	conf := filepath.Join(dir, "sentinel.conf")
	err = onFreePort(func() error {
		in.port = freePort()
		// A sentinel reads and rewrites its file: it can't run on arguments alone.
		lines := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n", in.port, dir) +
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2\n", MasterName, primary.port) +
			fmt.Sprintf("sentinel down-after-milliseconds %s 1000\n", MasterName) +
			fmt.Sprintf("sentinel failover-timeout %s 3000\nsentinel parallel-syncs %s 1\n", MasterName, MasterName)
		in.args = []string{conf, "--sentinel"}
		if err := os.WriteFile(conf, []byte(lines), 0o600); err != nil {
			return err
		}
		return in.launch()
	})
	if err != nil {
		in.stop()
		return nil, fmt.Errorf("a sentinel: %w", err)
	}
	return in, nil
}

// FailoverClient makes a client that asks the sentinels for the primary. It is closed at the end of the test.
func (x *Sentinel) FailoverClient(mod ...func(*redis.FailoverOptions)) *redis.Client {
	opt := &redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: x.sentinelAddrs()}
	for _, m := range mod {
		m(opt)
	}
	rdb := redis.NewFailoverClient(opt)
	x.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (x *Sentinel) sentinelAddrs() (addrs []string) {
	for _, s := range x.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Primary returns the server that is the primary now. During a failover it
// waits until there is one that runs.
func (x *Sentinel) Primary() *Server {
	x.tb.Helper()
	return first(x.tb, x.Nodes, "a primary", func(node *Server) bool { return node.running() && node.Role() == "master" })
}

func await(what string, ok func() bool) error {
	for deadline := time.Now().Add(startTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s for %s", startTimeout, what)
		}
	}
	return nil
}
