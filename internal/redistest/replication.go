package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// StartPair starts a server and a replica that follows it.
func StartPair(tb testing.TB, v Version) (primary, replica *Server) {
	tb.Helper()
	primary = StartServer(tb, v, "--repl-diskless-sync-delay", "0")
	return primary, startReplica(tb, primary)
}

func startReplica(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	replica := StartServer(tb, primary.Version, "--repl-diskless-sync-delay", "0",
		"--replicaof", "127.0.0.1 "+strconv.Itoa(primary.port))
	waitFor(tb, "the replica to follow", func() bool {
		return strings.Contains(replica.info("replication"), "master_link_status:up")
	})
	return replica
}

// Role is what the server says that it is: "master" or "slave", or nothing
// where it doesn't answer.
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

// StartSentinel starts such a set.
func StartSentinel(tb testing.TB, v Version) *Sentinel {
	tb.Helper()
	primary, replica := StartPair(tb, v)
	x := &Sentinel{Version: v, tb: tb, Nodes: []*Server{primary, replica, startReplica(tb, primary)}}
	for range 3 {
		x.Sentinels = append(x.Sentinels, startSentinel(tb, primary))
	}
	for _, s := range x.Sentinels {
		rdb := redis.NewSentinelClient(s.plainOptions())
		defer rdb.Close()
		waitFor(tb, "the sentinels to know each other", func() bool {
			others, err1 := rdb.Sentinels(tb.Context(), MasterName).Result()
			replicas, err2 := rdb.Replicas(tb.Context(), MasterName).Result()
			return err1 == nil && err2 == nil && len(others) == 2 && len(replicas) == 2
		})
	}
	return x
}

func startSentinel(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "leasehold-sentinel-")
	if err != nil {
		tb.Fatal(err)
	}
	in := &instance{version: primary.Version, dir: dir, bare: true}
	tb.Cleanup(in.stop)
	conf := filepath.Join(dir, "sentinel.conf")
	for range 20 {
		in.port = freePort()
		// A sentinel reads and rewrites its file: it can't run on arguments alone.
		lines := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n", in.port, dir) +
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2\n", MasterName, primary.port) +
			fmt.Sprintf("sentinel down-after-milliseconds %s 1000\n", MasterName) +
			fmt.Sprintf("sentinel failover-timeout %s 3000\nsentinel parallel-syncs %s 1\n", MasterName, MasterName)
		if err := os.WriteFile(conf, []byte(lines), 0o600); err != nil {
			tb.Fatal(err)
		}
		in.args = []string{conf, "--sentinel"}
		if err = in.launch(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		tb.Fatalf("start sentinel: %v", err)
	}
	return in.handle(tb)
}

// FailoverClient makes a client that asks the sentinels for the primary. It is
// closed at the end of the test.
func (x *Sentinel) FailoverClient(mod ...func(*redis.FailoverOptions)) *redis.Client {
	opt := &redis.FailoverOptions{MasterName: MasterName}
	for _, s := range x.Sentinels {
		opt.SentinelAddrs = append(opt.SentinelAddrs, s.Addr())
	}
	for _, m := range mod {
		m(opt)
	}
	rdb := redis.NewFailoverClient(opt)
	x.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Primary returns the server that is the primary now. During a failover it
// waits until there is one that runs.
func (x *Sentinel) Primary() *Server {
	x.tb.Helper()
	var primary *Server
	waitFor(x.tb, "a primary", func() bool {
		for _, node := range x.Nodes {
			if node.running() && node.Role() == "master" {
				primary = node
			}
		}
		return primary != nil
	})
	return primary
}

func waitFor(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(startTimeout); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited %s for %s", startTimeout, what)
		}
	}
}
