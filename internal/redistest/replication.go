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
	both := own(tb, "a pair", v, func(v Version) (fleet, error) { return startNodes(v, 1, args...) }).handles(tb)
	return both[0], both[1]
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

func (x *Replicated) Cut() {
	for _, link := range x.Links {
		link.Cut()
	}
}

func (x *Replicated) Heal() {
	for _, link := range x.Links {
		link.Heal()
	}
}

// startNodes starts a primary and some replicas, and waits until they follow.
func startNodes(v Version, replicas int, args ...string) (nodes fleet, err error) {
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	for range 1 + replicas {
		node, err := startInstance(v, args...)
		if nodes = append(nodes, node); err != nil {
			return nodes, err
		}
		if len(nodes) == 1 {
			args = append(args, "--replicaof", "127.0.0.1 "+strconv.Itoa(node.port))
		}
	}
	return nodes, await("the replicas to follow", func() bool {
		return !slices.ContainsFunc(nodes[1:], func(replica *instance) bool {
			return !strings.Contains(replica.info("replication"), "master_link_status:up")
		})
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
	Nodes     []*Server // the first began as the primary
	Sentinels []*Server

	tb testing.TB
}

// watched is the servers of a Sentinel set.
type watched struct{ nodes, sentinels fleet }

func (w watched) servers() []*instance { return slices.Concat(w.sentinels, w.nodes) }

func (w watched) handle(tb testing.TB) *Sentinel {
	return &Sentinel{w.nodes.handles(tb), w.sentinels.handles(tb), tb}
}

// StartSentinel starts such a set for this test alone.
func StartSentinel(tb testing.TB, v Version) *Sentinel {
	tb.Helper()
	return own(tb, "sentinels", v, startWatched).handle(tb)
}

func startWatched(v Version) (w watched, err error) {
	if w.nodes, err = startNodes(v, 2); err != nil {
		return w, err
	}
	for range 3 {
		s, err := startSentinel(w.nodes[0])
		if w.sentinels = append(w.sentinels, s); err != nil {
			return w, err
		}
	}
	return w, await("the sentinels to know each other", func() bool {
		return !slices.ContainsFunc(w.sentinels, func(s *instance) bool {
			return !strings.Contains(s.info("sentinel"), "slaves=2,sentinels=3")
		})
	})
}

func startSentinel(primary *instance) (*instance, error) {
	dir, err := newFolder("sentinel")
	in := &instance{version: primary.version, dir: dir, bare: true}
	if err != nil {
		return in, err
	}
	conf := filepath.Join(dir, "sentinel.conf")
	in.args = []string{conf, "--sentinel"}
	err = onFreePort(func() error {
		in.port = freePort()
		// A sentinel reads and rewrites its file: it can't run on arguments alone.
		lines := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n", in.port, dir) +
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2\n", MasterName, primary.port) +
			fmt.Sprintf("sentinel down-after-milliseconds %s 1000\n", MasterName) +
			fmt.Sprintf("sentinel failover-timeout %s 3000\nsentinel parallel-syncs %s 1\n", MasterName, MasterName)
		if err := os.WriteFile(conf, []byte(lines), 0o600); err != nil {
			return err
		}
		return in.launch()
	})
	return in, err
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

// Primary returns the server that is the primary now. During a failover it waits until there is one that runs.
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
