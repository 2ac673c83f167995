package call

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// unknownNode names the server of a key while no topology is known.
const unknownNode = "?"

// reloadPause is the shortest time between two reloads of the topology that only
// a caller's deadline led to.
const reloadPause = time.Second

// ended is a ctx that has ended: a look-up with it makes no connection.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Node names the server that has key, as far as the client knows: calls for one
// node go together, so that a node that hangs delays no other's. It never blocks.
// It is empty where there is one server, and "?" while a Cluster's topology is
// unknown, which is then asked for in the background.
func (c *Client) Node(key string) string {
	if c.cluster == nil {
		return ""
	}
	if !c.mapped.Load() {
		c.askTopology(key)
		return unknownNode
	}
	node, err := c.cluster.MasterForKey(ended, key)
	if err != nil {
		return unknownNode // the client is closed
	}
	return node.Options().Addr
}

// Server is Node for a sharded channel, and how to subscribe to the channel at that
// server. It is nil where no server is known to have the channel's slot.
func (c *Client) Server(channel string) (name string, subscribe func(ctx context.Context) *redis.PubSub) {
	if name = c.Node(channel); name == unknownNode {
		return name, nil
	}
	node, err := c.cluster.MasterForKey(ended, channel)
	if err != nil {
		return unknownNode, nil // the client is closed
	}
	return node.Options().Addr, func(ctx context.Context) *redis.PubSub { return node.SSubscribe(ctx, channel) }
}

// route names the server of a call that has none yet. Where a Cluster's topology
// is unknown it waits for that, until ctx ends.
func (c *Client) route(ctx context.Context, one *Call) error {
	if c.cluster == nil || (one.Node != "" && one.Node != unknownNode) {
		return nil
	}
	if err := c.awaitTopology(ctx, one.Key()); err != nil {
		return notSent(err)
	}
	one.Node = c.Node(one.Key())
	return nil
}

// awaitTopology waits, where a Cluster's topology is unknown, until it is known or
// ctx ends.
func (c *Client) awaitTopology(ctx context.Context, key string) error {
	if c.cluster == nil || c.mapped.Load() {
		return nil
	}
	_, err := c.askTopology(key).wait(ctx)
	return err
}

// askTopology has go-redis look up a node, and so load the topology.
func (c *Client) askTopology(key string) *answer[struct{}] {
	return c.topology.ask(inBackground, func(ctx context.Context) (struct{}, error) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(ctx, Bound)
		defer cancel()
		_, err := c.cluster.MasterForKey(ctx, key)
		switch {
		case err == nil:
			c.mapped.Store(true)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			err = TooLate(notSent(err), began)
		}
		return struct{}{}, err
	})
}

// laneOf is the lane of a call to its server. Calls that replicas confirm have one of
// their own: others, above all those that give something back, do not wait for replicas.
func (c *Client) laneOf(one *Call) *lane {
	lanes := &c.lanes
	if one.Confirm != nil {
		lanes = &c.confirming
	}
	if l, ok := lanes.Load(one.Node); ok {
		return l.(*lane)
	}
	l, _ := lanes.LoadOrStore(one.Node, &lane{c: c, born: time.Now(), allowance: one.Allowance()})
	return l.(*lane)
}

// Notice reloads a Cluster's topology when a node could not be talked to, or says
// that it is not what the topology says: go-redis would go on asking the old
// primary for a minute. go-redis reloads in the background, once at a time.
func (c *Client) Notice(err error) {
	if c.cluster == nil || err == nil {
		return
	}
	text := serverError(err)
	switch {
	case network(err), strings.HasPrefix(text, "READONLY"), strings.HasPrefix(text, "CLUSTERDOWN"), strings.HasPrefix(text, "MOVED"):
	case errors.Is(err, context.DeadlineExceeded):
		// The caller's own deadline may be short, and no fault of the server's.
		now, last := time.Now(), c.reloaded.Load()
		if (last != nil && now.Sub(*last) < reloadPause) || !c.reloaded.CompareAndSwap(last, &now) {
			return
		}
	default:
		return
	}
	c.cluster.ReloadState(context.Background())
}
