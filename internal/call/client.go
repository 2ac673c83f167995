// Package call sends scripts to Redis. It owns how a script reaches a server: the
// round trips that callers share, the scripts that a server has forgotten, the
// time bounds, and what an error tells about whether the script ran. It knows
// nothing of leases.
//
// One call goes Do (call.go), then its lane (lane.go), then a round trip alone (call.go)
// or in a pipeline (pipeline.go), and comes back as an outcome (call.go).
package call

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Bound is how long a call may wait until it is sent: in its lane and for a
	// connection together. A write and a read follow, which the client's own
	// WriteTimeout and ReadTimeout bound (3 s each by default). So Do returns
	// within Bound and these two, for any number of callers, unless the caller's
	// ctx lets the call wait longer in a lane whose server answers others.
	Bound = 3 * time.Second
	// longestRead is the longest read timeout that is left to the client.
	longestRead = 5 * time.Second
	// hardBound ends the wait for a client that bounds its reads with more than
	// longestRead, not at all, or in a way that is not known.
	hardBound = Bound + longestRead
)

// Client sends scripts through one go-redis client.
type Client struct {
	rdb          redis.UniversalClient
	cluster      clusterClient // what rdb offers of a Cluster client, nil = nothing
	known        bool          // rdb has options of go-redis that tell its kind
	bounds       bool          // rdb bounds reads and writes itself, to longestRead or less
	replica      bool          // rdb reads from replicas
	longestReply time.Duration // the longest that rdb surely waits for an answer
	spawn        func(func())  // starts a goroutine; see CountQuestions
	caches       bool          // rdb caches replies in the process

	lanes      sync.Map                  // *lane by the name of its server
	confirming sync.Map                  // the same of calls with a Confirm
	lent       atomic.Pointer[lentCtx]   // see Client.bounded
	checked    atomic.Bool               // the server's version is known to be supported
	clocks     sync.Map                  // *clock by the name of its server
	topology   shared[struct{}]          // the question for a Cluster's topology
	mapped     atomic.Bool               // go-redis has a topology, and so will have one for ever
	reloaded   atomic.Pointer[time.Time] // when a deadline led to a reload last
}

// clusterClient is what a Cluster client offers for routing.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// NewClient makes a Client, and refuses a nil one and a Ring. A Ring chooses its
// shards in the client, so that a channel's shard need not be its key's, and
// resharding loses leases.
//
// rdb may be wrapped. What it can do is known by its methods: Options and, of a
// Cluster client, MasterForKey and ReloadState. A type that does not have them is
// searched for one that does: the result of its method Unwrap, or a field that it
// embeds. A Cluster client that is hidden all the same is refused by the first
// call, if the server says that it is part of a Cluster.
func NewClient(rdb redis.UniversalClient) (*Client, error) {
	if rdb == nil {
		return nil, fmt.Errorf("rdb is nil; want a client of go-redis v9")
	}
	c := &Client{rdb: rdb, longestReply: longestRead, spawn: inBackground}
	layers, err := layersOf(rdb)
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		if _, ok := layer.(interface{ SetAddrs(map[string]string) }); ok {
			return nil, fmt.Errorf("rdb is a %T, which is a Ring; want a single server, Sentinel or Cluster client", layer)
		}
		if c.recognise(layer) {
			break
		}
	}
	return c, nil
}

func inBackground(f func()) { go f() }

// CountQuestions has spawn start the goroutines of questions for the time, so that the
// owner of the Client can wait for them. It is called before the Client is used.
func (c *Client) CountQuestions(spawn func(func())) { c.spawn = spawn }

// layersOf is rdb and the clients that it wraps, the outermost first. It fails
// where one of them is nil: its methods would panic.
func layersOf(rdb redis.UniversalClient) (layers []any, err error) {
	for layer, more := any(rdb), true; more && len(layers) < maxLayers; {
		if v := reflect.ValueOf(layer); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, fmt.Errorf("rdb is a %T around or of nil; want a client of go-redis v9", rdb)
		}
		layers = append(layers, layer)
		layer, more = inner(layer)
	}
	return layers, nil
}

// maxLayers is how many types around a client are opened to find it.
const maxLayers = 16

// recognise takes from layer what it tells about the client, and reports whether
// it told.
func (c *Client) recognise(layer any) bool {
	switch r := layer.(type) {
	case interface{ Options() *redis.ClusterOptions }:
		o := r.Options()
		cluster, ok := layer.(clusterClient)
		if o == nil || !ok {
			return false
		}
		c.known, c.cluster = true, cluster
		c.replica = o.ReadOnly || o.RouteByLatency || o.RouteRandomly
		// With reads from replicas, go-redis asks a server for its commands
		// without a bound before it sends the first one.
		c.bounds = isShort(o.ReadTimeout) && isShort(o.WriteTimeout) && !c.replica
		c.readsWithin(o.ReadTimeout)
	case interface{ Options() *redis.Options }:
		o := r.Options()
		if o == nil {
			return false
		}
		c.known = true
		c.caches = o.ClientSideCacheConfig != nil || o.ClientSideCache != nil
		c.bounds = isShort(o.ReadTimeout) && isShort(o.WriteTimeout)
		c.readsWithin(o.ReadTimeout)
	default:
		return false
	}
	return true
}

// readsWithin takes the client's ReadTimeout.
func (c *Client) readsWithin(timeout time.Duration) {
	if isShort(timeout) {
		c.longestReply = timeout
	}
}

func isShort(timeout time.Duration) bool { return timeout > 0 && timeout <= longestRead }

// inner is the client that layer wraps, if that can be seen.
func inner(layer any) (client any, ok bool) {
	switch w := layer.(type) {
	case interface{ Unwrap() redis.UniversalClient }:
		return w.Unwrap(), true
	case interface{ Unwrap() *redis.ClusterClient }:
		return w.Unwrap(), true
	case interface{ Unwrap() *redis.Client }:
		return w.Unwrap(), true
	}
	v := reflect.Indirect(reflect.ValueOf(layer))
	if v.Kind() != reflect.Struct {
		return nil, false
	}
	wanted := reflect.TypeFor[redis.UniversalClient]()
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.Anonymous && field.IsExported() && field.Type.Implements(wanted) {
			return v.Field(i).Interface(), true
		}
	}
	return nil, false
}

// ReadsFromReplicas reports whether the client may read from replicas, as far as
// its options can be seen.
func (c *Client) ReadsFromReplicas() bool { return c.replica }

// CachesLocally reports whether the client caches replies in the process, as far
// as its options can be seen.
func (c *Client) CachesLocally() bool { return c.caches }

// IsCluster reports whether the client was recognised as one of a Cluster.
func (c *Client) IsCluster() bool { return c.cluster != nil }

// Subscribe opens a subscription on one channel. It connects before it returns.
func (c *Client) Subscribe(ctx context.Context, channel string) *redis.PubSub {
	return c.rdb.Subscribe(ctx, channel)
}
