package replicas

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A failover promotes a replica in the place of its primary, after the links of replicas were cut.
type failover struct {
	name     string
	cut      []int // replicas, in the order in which their links are cut
	promoted int
}

var failovers = []failover{
	{name: "the most advanced", cut: []int{0, 1}, promoted: 1},
	{name: "the one cut first", cut: []int{0, 1}, promoted: 0},
	{name: "one that was behind, the other not cut", cut: []int{0}, promoted: 0},
}

// between is how long locks are taken before a cut, and before the primary is killed.
const between = 100 * time.Millisecond

// Links are cut, the primary is killed while locks are taken, and a replica takes its place. Counted are the locks
// that it grants although their holders believe in them. The table of docs/choosing.md is what this prints:
//
//	LEASEHOLD_REQUIRE_SERVERS=1 LEASEHOLD_ROUNDS=5 go test -run TestFailoverCounts -v ./internal/tests/replicas
func TestFailoverCounts(t *testing.T) {
	newest := redistest.Newest(t) // skips all of it where there are no servers
	rounds := harness.Rounds(t, 1)
	for _, f := range failovers {
		for replicas := range 3 {
			double, held := 0, 0
			for range rounds {
				t.Run(f.name, func(t *testing.T) {
					d, h := f.run(t, newest, replicas)
					double, held = double+d, held+h
				})
			}
			t.Logf("promoted: %s; Replicas %d: %d of %d locks were granted twice", f.name, replicas, double, held)
			mostAdvanced := f.promoted == f.cut[len(f.cut)-1] && len(f.cut) == 2
			switch safe := replicas == 2 || replicas == 1 && mostAdvanced; {
			case held == 0:
				t.Errorf("no lock was held")
			case safe && double != 0:
				t.Errorf("want that none is granted twice")
			case replicas == 0 && double == 0:
				t.Errorf("no lock was granted twice: this failover lost nothing, and so shows nothing")
			}
		}
	}
}

// run has one failover while processes take one lock after the other, and keep them. It returns how many of the locks
// were granted twice, of how many.
func (f failover) run(t *testing.T, version redistest.Version, replicas int) (double, held int) {
	x := redistest.StartReplicated(t, version, 2)
	var current atomic.Pointer[redistest.Server]
	current.Store(x.Primary)
	cfg := mutex.Config{Name: redistest.Name(t), Replicas: replicas, ReplicaWait: 100 * time.Millisecond}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var takers sync.WaitGroup
	var locks sync.Map // by key
	var keys atomic.Int64
	for range 4 {
		m := openMutex(t, x.Primary.Client(func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, current.Load().Addr())
			}
		}), cfg)
		for range 8 {
			takers.Go(func() {
				for ctx.Err() == nil {
					key := fmt.Sprint("k", keys.Add(1))
					if l, err := m.Lock(ctx, key); err == nil {
						locks.Store(key, l)
					}
				}
			})
		}
	}
	for _, replica := range f.cut {
		time.Sleep(between)
		written := offset(t, x.Primary.Client(), "master_repl_offset")
		for i := range x.Replicas {
			if i >= replica { // what was confirmed until now, all that are not cut have
				redistest.Eventually(t, "the replicas to follow", func() bool {
					return offset(t, x.Replicas[i].Client(), "slave_repl_offset") >= written
				})
			}
		}
		x.Links[replica].Cut()
	}
	time.Sleep(between)
	x.Primary.Kill()
	cancel()
	takers.Wait()
	promoted := x.Replicas[f.promoted]
	redistest.WantErr(t, promoted.Client().ReplicaOf(t.Context(), "NO", "ONE").Err())
	// The holders believe in their locks: the first renewal, which would tell them, is due after a third of 30 s.
	other := openMutex(t, promoted.Client(), mutex.Config{Name: cfg.Name, TTL: time.Minute})
	var all sync.WaitGroup
	var twice atomic.Int64
	for key, l := range locks.Range {
		held++
		all.Go(func() {
			_, err := other.TryLock(context.Background(), key.(string))
			if err == nil && time.Now().Before(l.(*mutex.Lock).Deadline()) {
				twice.Add(1)
			}
		})
	}
	all.Wait()
	current.Store(promoted) // where the holders give back
	return int(twice.Load()), held
}

// offset is a field of INFO replication.
func offset(t *testing.T, rdb *redis.Client, field string) int {
	_, rest, _ := strings.Cut(rdb.Info(t.Context(), "replication").Val(), field+":")
	text, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.Atoi(text)
	redistest.CheckNow(t, err == nil, "%s: %v", field, err)
	return n
}
