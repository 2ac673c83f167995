package call

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/embedded"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A nodes is a Cluster client in a bubble, of two servers that have half of the slots each.
type nodes struct {
	*redis.ClusterClient
	away  atomic.Bool // no connection can be made
	moved atomic.Bool // the second has all slots
	mu    sync.Mutex
	conns map[string][]net.Conn // by the server's address

	dialled func(addr string, conn net.Conn) (net.Conn, error) // wraps a new connection; nil: none
}

const hangs, works = "192.0.2.1:6379", "192.0.2.2:6379"

// keysOf has a key of each server.
var keysOf = map[string]string{hangs: "foo", works: "bar"} // slots 12182 and 5061

func newNodes(t *testing.T) *nodes {
	n := &nodes{conns: map[string][]net.Conn{}}
	dialers := map[string]func(context.Context, string, string) (net.Conn, error){}
	for addr := range keysOf {
		server, _ := redistest.Bubble(t)
		dialers[addr] = embedded.Options(server).Dialer
	}
	n.ClusterClient = redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			if n.away.Load() {
				return nil, errRefused
			}
			upper := hangs
			if n.moved.Load() {
				upper = works
			}
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: works}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: upper}}},
			}, nil
		},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(100 * time.Millisecond) // so that each caller has a connection of its own
			if n.away.Load() {
				return nil, errRefused
			}
			conn, err := dialers[addr](ctx, network, addr)
			if n.dialled != nil && err == nil {
				conn, err = n.dialled(addr, conn)
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.conns[addr] = append(n.conns[addr], conn)
			return conn, err
		},
	})
	t.Cleanup(func() {
		_ = n.Close()
		time.Sleep(time.Second) // go-redis looks up the topology meanwhile
	})
	return n
}

// One server of a Cluster does not answer. The broken connections to another one are dropped all the same.
func TestBrokenConnectionsOfTwoServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t)
		gate := make(chan struct{})
		n.AddHook(ours(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if cmds[0].Args()[3] == keysOf[hangs] {
				<-gate
			}
			return send()
		}))
		c := newReady(t, n)
		var all sync.WaitGroup
		for range 4 {
			for _, key := range keysOf {
				all.Go(func() { _, _ = c.Get(c.Brief(), key) })
			}
		}
		all.Wait()
		c.sweep(keysOf[hangs])
		synctest.Wait()
		n.mu.Lock()
		for _, conn := range n.conns[works] {
			_ = conn.Close()
		}
		n.mu.Unlock()
		_, err := c.Get(c.Brief(), keysOf[works])
		redistest.Check(t, err == redis.Nil, "%v; want that there is no value", err)
		close(gate)
		c.Settle()
	})
}

// The topology was unknown in an outage. The first caller after that goes on.
func TestOutageBeforeTheTopologyIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t)
		n.away.Store(true)
		c := redistest.Must(NewClient(n))(t)
		redistest.WantErr(t, redistest.ErrorOf(c.Do(t.Context(), echoed("k", 1))), ErrNotSent)
		redistest.Check(t, c.Away("k"), "the servers are within reach")
		time.Sleep(time.Second)
		n.away.Store(false)
		redistest.NoError(t, c.Reachable(t.Context(), "k"))
		redistest.Check(t, !c.Away("k") && c.troubles.Load() == 0, "the breaker is open after an answer")
	})
}

// A crowd of first calls to the servers of a Cluster waits for the topology and then for one question to each server, at
// the same time: not for one server after the other.
func TestFirstCallsToTwoServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redistest.Must(NewClient(newNodes(t)))(t)
		defer c.Settle()
		began := time.Now()
		var all sync.WaitGroup
		for _, key := range keysOf {
			all.Go(func() {
				redistest.Must(c.Time(t.Context(), key))(t)
				redistest.AtMost(t, time.Since(began), 150*time.Millisecond, "the time of a server took %v; want one dial of 100 ms")
			})
		}
		all.Wait()
	})
}

// A primary hangs, and a replica takes over. When an answer is late, the topology is asked for: the call that is repeated
// goes to the new primary, long before the client gives up the first one.
func TestLateAnswerAsksForTheTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t)
		c := newReady(t, n)
		defer c.Settle()
		key, gate := keysOf[hangs], make(chan struct{})
		n.AddHook(ours(func(_ context.Context, _ []redis.Cmder, send func() error) error {
			<-gate
			return send()
		}))
		defer close(gate)
		one := echoed(key, 1)
		c.Start(t.Context(), nil, one)
		synctest.Wait()
		n.moved.Store(true)
		redistest.Expect(t, c.Node(key), hangs, "the key is at %s")
		_, pending := one.Pending(time.Now(), time.Second, time.Second)
		redistest.Check(t, pending, "an answer is late at once")
		synctest.Wait()
		redistest.Expect(t, c.Node(key), hangs, "before the answer is late, the key is at %s")
		time.Sleep(time.Second)
		_, pending = one.Pending(time.Now(), time.Second, time.Second)
		redistest.Check(t, !pending, "no answer is late after 1 s")
		synctest.Wait()
		redistest.Expect(t, c.Node(key), works, "the key is at %s")
	})
}

// A slot that its node sends on (ASK) is apart: until nobody has been sent on for a while, or the topology names another node.
func TestSlotThatMovesIsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t)
		c := newReady(t, n)
		defer c.Settle()
		says := func(answer string) {
			for _, key := range keysOf {
				echoed(key, 1).command(t.Context(), c.link).SetErr(serverSays(answer))
			}
		}
		says("MOVED 1 other:1")
		redistest.Expect(t, c.Node(keysOf[hangs]), hangs, "moved: %s")
		for range 2 {
			says("ASK 1 other:1")
			redistest.Expect(t, c.Node(keysOf[hangs]), hangs+" to other:1", "asked: %s")
			redistest.Expect(t, c.Node("another"), hangs, "another slot: %s")
			time.Sleep(askedFor)
			redistest.Expect(t, c.Node(keysOf[hangs]), hangs, "later: %s")
		}
		says("ASK 1 other:1")
		time.Sleep(time.Second) // the client looks at the topology, since what it has is old, and then pauses
		n.moved.Store(true)
		c.Notice(errRefused)
		synctest.Wait()
		redistest.Expect(t, c.Node(keysOf[hangs]), works, "at its new node: %s")
		redistest.Expect(t, c.Node(keysOf[works]), works+" to other:1", "still on its way: %s")
		time.Sleep(askedFor)
		redistest.Expect(t, c.Node(keysOf[works]), works, "in the end: %s")
		redistest.Expect(t, c.asking.Load(), 0, "%d slots are kept in mind")
	})
}

func TestSlots(t *testing.T) {
	for key, want := range map[string]uint16{"foo": 12182, "bar": 5061, "a{foo}{bar}": 12182, "": 0} {
		redistest.Expect(t, slot(key), want, "the slot is %d")
	}
}

// Calls that replicas confirm bypass the Cluster client, which reads others once more, and a hook may read the first of a
// pipeline. Once that is learned it does not look like a call that was sent twice.
func TestConfirmedCallsAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodes(t)
		n.OnNewNode(func(node *redis.Client) {
			node.AddHook(ours(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				touch(cmds[0])
				return send()
			}))
		})
		c := newReady(t, n)
		defer c.Settle()
		for round := range 4 {
			for _, confirm := range []Confirm{{}, {Replicas: 1, Wait: time.Second, TTL: time.Second}} {
				calls := make([]*Call, 3)
				for i := range calls {
					calls[i] = echoed(keysOf[works], i)
					calls[i].Confirm = confirm
				}
				c.Send(t.Context(), calls)
				for i, one := range calls {
					redistest.Check(t, round == 0 || !one.Copied(), "round %d, call %d, confirmed by %d: it counts as sent twice", round, i, confirm.Replicas)
				}
			}
		}
	})
}
