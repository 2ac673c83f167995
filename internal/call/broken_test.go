package call

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// If all connections of the pools are broken, a look-up has its answer, and a call comes to one of them at most.
// Nothing is left running once the client has settled.
func TestBrokenConnectionsAreDropped(t *testing.T) {
	for name, run := range map[string]func(*Client) error{
		"Get":     func(c *Client) error { return redistest.ErrorOf(c.Get(c.Brief(), "k")) },
		"GetMany": func(c *Client) error { return c.GetMany(c.Brief(), []string{"k", "l"})[1].Err },
		"Do":      func(c *Client) error { return redistest.ErrorOf(c.Do(context.Background(), echoed("k", 1))) },
		"Send": func(c *Client) (err error) {
			one := echoed("k", 1)
			one.Done = func(_ []int64, failed error) { err = failed }
			c.Send(context.Background(), []*Call{one, echoed("l", 2)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var conns []net.Conn
				rdb, c := newBubble(t, func(o *redis.Options) {
					dial := o.Dialer
					o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						time.Sleep(time.Second) // so that each caller has a connection of its own
						conn, err := dial(ctx, network, addr)
						mu.Lock()
						defer mu.Unlock()
						conns = append(conns, conn)
						return conn, err
					}
				})
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() { rdb.Ping(t.Context()) })
					all.Go(func() {
						_, _ = rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Ping(t.Context()).Err() })
					})
				}
				all.Wait()
				for _, conn := range conns {
					_ = conn.Close()
				}
				err := run(c)
				if name == "Do" || name == "Send" {
					redistest.Check(t, broken(err), "the call came to no broken connection: %v", err)
				} else {
					redistest.Check(t, err == nil || err == redis.Nil, "%v", err)
				}
				c.Settle()
				stats := rdb.PoolStats()
				redistest.AtMost(t, stats.TotalConns+stats.PipelineStats.TotalConns, 2, "%d connections are left of %d", len(conns))
				err = run(c)
				redistest.Check(t, err == nil || err == redis.Nil, "after that: %v", err)
			})
		})
	}
}
