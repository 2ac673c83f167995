package mutex

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// network is a network that can lose what is sent to connect.
type network struct {
	loses  atomic.Bool
	healed chan struct{}
}

func newNetwork() *network { return &network{healed: make(chan struct{})} }

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !n.loses.Load() {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	select {
	case <-ctx.Done():
	case <-n.healed:
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
}

func (n *network) heal() {
	n.loses.Store(false)
	close(n.healed)
}

// A Cluster cannot be reached when it is first asked for its topology: a caller
// whose ctx ends returns then, and so do others that come meanwhile.
func TestCtxEndsWhileAClusterIsLookedFor(t *testing.T) {
	redistest.NeedServers(t)
	for name, loses := range map[string]bool{"packets are dropped": true, "nobody listens": false} {
		t.Run(name, func(t *testing.T) {
			way := newNetwork()
			way.loses.Store(loses)
			t.Cleanup(way.heal)
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}, Dialer: way.dial})
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
					harness.IsErr(t, "lock", err, context.DeadlineExceeded)
					took := time.Since(began)
					redistest.Check(t, took <= patience+harness.Slack, "a caller with %v returned after %v: %v", patience, took, err)
				})
			}
			all.Wait()
			began := time.Now()
			_, err := m.Lock(t.Context(), "k")
			harness.IsErr(t, "lock", err, leasehold.ErrUnavailable)
			took := time.Since(began)
			t.Logf("without a deadline: %v: %v", took, err)
			redistest.Check(t, took <= lockBound(rdb.Options().ReadTimeout), "without a deadline: %v", took)
			began = time.Now()
			harness.CloseWithin(t, redistest.Soon, m)
			redistest.AtMost(t, time.Since(began), 2*harness.Slack, "Close took %v with nothing to give back")
		})
	}
}

// lockBound is the documented bound of a Lock that Redis does not answer: 3 s of
// tries, of which the last may take 3 s for a connection and the read timeout.
func lockBound(readTimeout time.Duration) time.Duration {
	return 3*time.Second + 3*time.Second + readTimeout + harness.Slack
}

// Packets to connect are dropped, with go-redis's own patience (five dials of 5 s,
// each call four times): Lock and Unlock without a deadline keep their bounds.
func TestBoundsWhereDialsAreDropped(t *testing.T) {
	srv := redistest.StartServer(t, redistest.NeedServers(t)[0])
	var all sync.WaitGroup
	defer all.Wait()
	for _, warm := range []bool{true, false} {
		for _, callers := range []int{1, 20} {
			all.Go(func() {
				t.Run(fmt.Sprintf("warm %v, %d callers", warm, callers), func(t *testing.T) {
					p := redistest.NewProxy(t, srv.Addr())
					way := newNetwork()
					rdb := p.Client(func(o *redis.Options) { o.Dialer = way.dial })
					m, err := mutex.New(rdb, mutex.Config{Name: redistest.Name(t)})
					redistest.WantErr(t, err)
					var held *mutex.Lock
					if warm {
						if held, err = m.Lock(t.Context(), "held"); err != nil {
							t.Fatal(err)
						}
					}
					way.loses.Store(true)
					p.Refuse(true)
					p.CloseAll()
					readTimeout := rdb.Options().ReadTimeout
					var some sync.WaitGroup
					var mu sync.Mutex
					var longest time.Duration
					for i := range callers {
						some.Go(func() {
							began := time.Now()
							_, err := m.Lock(context.Background(), fmt.Sprint(i))
							harness.IsErr(t, "lock", err, leasehold.ErrUnavailable)
							mu.Lock()
							defer mu.Unlock()
							longest = max(longest, time.Since(began))
						})
					}
					if warm {
						some.Go(func() {
							began := time.Now()
							err := held.Unlock()
							harness.IsErr(t, "unlock", err, leasehold.ErrUnavailable)
							took := time.Since(began)
							t.Logf("unlock: %v: %v", took, err)
							redistest.WantNot(t, err, context.DeadlineExceeded) // no ctx of the caller's
							redistest.Check(t, took <= 5*time.Second+readTimeout+harness.Slack, "unlock took %v", took)
						})
					}
					some.Wait()
					t.Logf("lock: %v", longest)
					redistest.Check(t, longest <= lockBound(readTimeout), "lock without a deadline took %v", longest)
					p.Refuse(false)
					way.heal()
					harness.CloseWithin(t, redistest.Soon, m)
				})
			})
		}
	}
}
