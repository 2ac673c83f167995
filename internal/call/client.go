// Package call sends scripts to Redis. It owns how a script reaches a server: the
// round trips that callers share, the scripts that a server has forgotten, the
// time bounds, and what an error tells about whether the script ran. It knows
// nothing of leases.
package call

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client sends scripts through one go-redis client.
type Client struct {
	rdb     redis.UniversalClient
	cluster *redis.ClusterClient // rdb where it is one, else nil
	read    time.Duration        // the client's bound on a read, 0 = unknown
	lanes   sync.Map             // of each server by its name: *lane
}

// Bound is how long a call that nobody can cancel may wait for a connection,
// readBound how long a client may let it wait for the answer: go-redis's default.
const (
	Bound     = 3 * time.Second
	readBound = 5 * time.Second
)

// NewClient makes a Client. It refuses a Ring: its shards are chosen by the client,
// so that a channel's shard need not be its key's, and resharding loses leases.
func NewClient(rdb redis.UniversalClient) (*Client, error) {
	switch r := rdb.(type) {
	case nil:
		return nil, fmt.Errorf("rdb is nil; want a client of go-redis v9")
	case *redis.Ring:
		return nil, fmt.Errorf("rdb is a *redis.Ring; want a single server, Sentinel or Cluster client")
	case *redis.ClusterClient:
		return &Client{rdb: rdb, cluster: r, read: r.Options().ReadTimeout}, nil
	case *redis.Client:
		return &Client{rdb: rdb, read: r.Options().ReadTimeout}, nil
	}
	return &Client{rdb: rdb}, nil
}

// HasReadTimeout reports whether the client bounds each read itself, to 5 s or
// less. Then a call whose caller cannot be cancelled may be made on the caller's
// own goroutine, which is quicker by two switches.
func (c *Client) HasReadTimeout() bool { return c.read > 0 && c.read <= readBound }

// Time asks the server that has key for its clock, in µs.
func (c *Client) Time(ctx context.Context, key string) (int64, error) {
	t, err := c.rdb.Time(ctx).Result()
	if err != nil {
		c.noticed(err)
		return 0, err
	}
	return t.UnixMicro(), nil
}

// Subscribe opens a subscription on one channel.
func (c *Client) Subscribe(ctx context.Context, channel string) *redis.PubSub {
	return c.rdb.Subscribe(ctx, channel)
}

// Do sends a call and waits for the answer. It may outlast ctx: go-redis does
// not interrupt a read. An unknown script is sent again in full.
func (c *Client) Do(ctx context.Context, one *Call) ([]int64, error) {
	c.lane(ctx, one).do(ctx, one)
	reply, err := one.outcome()
	c.noticed(err)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && Classify(err) == Unknown {
		err = errSlow // the lane's bound has passed, and not that of the caller's ctx
	}
	return reply, err
}

var errSlow = fmt.Errorf("no answer within %v", Bound)

// lane is what carries calls to the server that one is for.
func (c *Client) lane(ctx context.Context, one *Call) *lane {
	node := one.Node
	if node == "" {
		node = c.node(ctx, one.Key())
	}
	if l, ok := c.lanes.Load(node); ok {
		return l.(*lane)
	}
	l, _ := c.lanes.LoadOrStore(node, &lane{c: c})
	return l.(*lane)
}

// alone sends a call in a round trip of its own.
func (c *Client) alone(ctx context.Context, one *Call) {
	if unknownScript(c.rdb.Process(ctx, one.command(ctx))) {
		one.inFull()
		_ = c.rdb.Process(ctx, one.command(ctx))
	}
}

// SendInParts is Send in pipelines no longer than those of a lane, several at a
// time: for what was sent in one before, and not answered.
func (c *Client) SendInParts(ctx context.Context, calls []*Call) {
	var under sync.WaitGroup
	room := make(chan struct{}, maxInFlight)
	for len(calls) > 0 {
		some := calls[:fitting(calls)]
		calls = calls[len(some):]
		room <- struct{}{}
		under.Go(func() {
			c.Send(ctx, some)
			<-room
		})
	}
	under.Wait()
}

// Send sends calls in one pipeline, which go-redis splits by node in a Cluster,
// and gives each its outcome through Done.
func (c *Client) Send(ctx context.Context, calls []*Call) {
	c.together(ctx, calls)
	for _, one := range calls {
		reply, err := one.outcome()
		c.noticed(err)
		if one.Done != nil {
			one.Done(reply, err)
		}
	}
}

// together sends calls in one pipeline. Those whose script a server did not know
// are sent again: the first of them in full and by itself, since the text is long,
// the rest by name; and so on, for there may be other scripts among them, or
// servers, or one that forgot its scripts meanwhile.
func (c *Client) together(ctx context.Context, calls []*Call) {
	c.pipeline(ctx, calls)
	for unknown := unknownOf(calls); len(unknown) > 0; {
		unknown[0].inFull()
		c.pipeline(ctx, unknown[:1])
		if unknown = unknown[1:]; len(unknown) > 0 {
			c.pipeline(ctx, unknown)
			unknown = unknownOf(unknown)
		}
	}
}

// unknownOf is those of calls whose script the server did not know.
func unknownOf(calls []*Call) (unknown []*Call) {
	for _, one := range calls {
		if unknownScript(one.cmd.Err()) {
			unknown = append(unknown, one)
		}
	}
	return unknown
}

func (c *Client) pipeline(ctx context.Context, calls []*Call) {
	pipe := c.rdb.Pipeline()
	for _, one := range calls {
		_ = pipe.Process(ctx, one.command(ctx))
	}
	_, _ = pipe.Exec(ctx) // each command has its own outcome
}

// noticed reloads a Cluster's topology when a node could not be talked to:
// go-redis would go on asking the old primary for a minute.
func (c *Client) noticed(err error) {
	if c.cluster == nil || err == nil {
		return
	}
	if network(err) || strings.HasPrefix(err.Error(), "READONLY") || strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
		c.cluster.ReloadState(context.Background())
	}
}

// Node names the server that has key, as far as the client knows: calls for one
// node go together, so that a node that hangs delays no other's. It is empty where
// there is one server.
func (c *Client) Node(key string) string { return c.node(context.Background(), key) }

func (c *Client) node(ctx context.Context, key string) string {
	if c.cluster == nil {
		return ""
	}
	node, err := c.cluster.MasterForKey(ctx, key)
	if err != nil {
		return "?"
	}
	return node.Options().Addr
}
