package mutex

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A Cluster cannot be reached when it is first asked for its topology: a caller
// whose ctx ends returns then, and so do others that come meanwhile.
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
					took := time.Since(began)
					redistest.Check(t, errors.Is(err, context.DeadlineExceeded) && took <= patience+harness.Slack, "a caller with %v returned after %v: %v", patience, took, err)
				})
			}
			all.Wait()
			began := time.Now()
			_, err := m.Lock(t.Context(), "k")
			redistest.WantErr(t, err, leasehold.ErrUnavailable)
			took := time.Since(began)
			t.Logf("without a deadline: %v: %v", took, err)
			// 3 s of tries, of which the last may take 3 s for a connection and the read timeout.
			redistest.Check(t, took <= 6*time.Second+rdb.Options().ReadTimeout+harness.Slack, "without a deadline: %v", took)
			began = time.Now()
			harness.CloseWithin(t, redistest.Soon, m)
			redistest.AtMost(t, time.Since(began), 2*harness.Slack, "Close took %v with nothing to give back")
		})
	}
}
