// Package call sends scripts to Redis. It decides how a script reaches a server: it shares
// round trips between callers, resends scripts that a server has forgotten, bounds the time,
// and tells from an error whether the script ran. It knows nothing of leases.
//
// A call takes this path: Do or Start (call.go), the queue of its server (queue.go), a round
// trip alone (call.go) or in a pipeline (pipeline.go). Its result is an outcome (call.go).
package call

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

const (
	// Bound is how long a call may wait until it is sent, in the queue of a silent server and
	// for a connection together. The write and the read that follow are bounded by the
	// client's own WriteTimeout and ReadTimeout (5 s each by default).
	Bound = 3 * time.Second
	// longestRead is the longest read timeout for which the client itself is relied on.
	longestRead = 5 * time.Second
	// hardBound ends the wait for a client whose read timeout is longer than longestRead, missing, or unknown.
	hardBound = Bound + longestRead
)

// A Client sends scripts through one go-redis client, for one handle.
type Client struct {
	*link
	spawn func(func()) // starts a goroutine; see CountQuestions
}

// A link is what all Clients of one go-redis client share.
type link struct {
	rdb          sender
	subscribe    func(ctx context.Context, channel string) PubSub
	cluster      cluster       // rdb as a Cluster client; nil: it is none
	known        bool          // the options of rdb were found, and tell its kind
	boundsReads  bool          // rdb bounds reads and writes itself, to longestRead or less
	replica      bool          // rdb may read from replicas
	longestReply time.Duration // the longest time for which rdb surely waits for an answer
	caches       bool          // rdb caches replies in the process
	connections  int           // rdb has at most so many per server; 0: not known

	only      *server                   // the single server
	servers   sync.Map                  // *server of a Cluster by its name
	troubles  atomic.Int32              // how many breakers an answer would change
	least     leastReads                // see countSendings
	sharedCtx atomic.Pointer[sharedCtx] // see Client.bounded
	checked   atomic.Bool               // the server's version is known to be supported
	topology  shared[struct{}]          // the question for a Cluster's topology
	mapped    atomic.Bool               // go-redis has a topology, and will always have one
	reloaded  atomic.Pointer[time.Time] // when a deadline last caused a reload
	asked     sync.Map                  // *asked by slot
	asking    atomic.Int32              // how many slots asked has
}

// The next four are what the package uses of go-redis. A package that reaches the whole types of go-redis compiles all
// of their methods anew, which takes seconds, and every package reaches the link.

// A sender sends commands to all servers, or to one.
type sender interface {
	redis.Cmdable
	Process(ctx context.Context, cmd redis.Cmder) error
	PoolStats() *redis.PoolStats
}

// A PubSub is a subscription, as *redis.PubSub is.
type PubSub interface {
	ReceiveTimeout(ctx context.Context, timeout time.Duration) (any, error)
	Ping(ctx context.Context, payload ...string) error
	SSubscribe(ctx context.Context, channels ...string) error
	SUnsubscribe(ctx context.Context, channels ...string) error
	Close() error
}

// A cluster finds the primary of a key.
type cluster interface {
	primary(ctx context.Context, key string) (primary, error)
	ReloadState(ctx context.Context)
}

// A primary is one server of a Cluster.
type primary interface {
	sender
	addr() string
	ssubscribe(ctx context.Context, channel string) PubSub
	// beside returns a client for the node at addr, which may have no slot yet. It has no hooks, and must be closed.
	beside(addr string) (other sender, closes func() error)
}

// clusterClient has the methods of a Cluster client that routing needs.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

type clusterOf struct{ clusterClient }

func (c clusterOf) primary(ctx context.Context, key string) (primary, error) {
	node, err := c.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return primaryOf{node}, nil
}

type primaryOf struct{ *redis.Client }

func (p primaryOf) addr() string { return p.Options().Addr }

func (p primaryOf) beside(addr string) (other sender, closes func() error) {
	opt := *p.Options()
	opt.Addr, opt.PoolSize, opt.PipelinePoolSize, opt.MinIdleConns = addr, 1, 1, 0
	node := redis.NewClient(&opt)
	return node, node.Close
}

func (p primaryOf) ssubscribe(ctx context.Context, channel string) PubSub {
	return subscription(p.SSubscribe(ctx, channel))
}

// subscription returns ps, which the client of a user may have left nil.
func subscription(ps *redis.PubSub) PubSub {
	if ps == nil {
		return nil
	}
	return ps
}

// NewClient makes a Client. It refuses a nil rdb and a Ring. A Ring chooses its shards in the
// client, so a channel may be on another shard than its key, and resharding loses leases.
//
// rdb may be wrapped. It is recognised by its methods: Options and, for a Cluster client, MasterForKey and ReloadState.
// If a type does not have them, NewClient looks for a client inside it: the result of its method Unwrap, or a field
// that it embeds. If a Cluster client stays hidden, the first call refuses it, provided that the server says that it is
// part of a Cluster.
func NewClient(rdb redis.UniversalClient) (*Client, error) {
	if rdb == nil {
		return nil, fmt.Errorf("rdb is nil; want a client of go-redis v9")
	}
	layers, err := Layers(rdb)
	if err != nil {
		return nil, err
	}
	l, err := linkOf(rdb, func() (*link, error) { return newLink(rdb, layers) })
	if err != nil {
		return nil, err
	}
	return &Client{link: l, spawn: inBackground}, nil
}

// newLink returns the link of rdb, whose layers are known.
func newLink(rdb redis.UniversalClient, layers []any) (*link, error) {
	l := &link{rdb: rdb, longestReply: longestRead}
	l.subscribe = func(ctx context.Context, channel string) PubSub { return subscription(rdb.Subscribe(ctx, channel)) }
	l.only = newServer(l)
	for _, layer := range layers {
		if _, ok := layer.(interface{ SetAddrs(map[string]string) }); ok {
			return nil, fmt.Errorf("rdb is a %T, which is a Ring; want a single server, Sentinel or Cluster client", layer)
		}
		if l.recognise(layer) {
			break
		}
	}
	return l, nil
}

// Another returns a Client for another handle, on the same link.
func (c *Client) Another() *Client { return &Client{link: c.link, spawn: inBackground} }

func inBackground(f func()) { go f() }

// CountQuestions makes spawn start the goroutines that ask for the time, so that the owner of
// the Client can wait for them. Call it before the Client is used.
func (c *Client) CountQuestions(spawn func(func())) { c.spawn = spawn }

// Layers returns rdb and the clients that it wraps, the outermost first. It fails if one of
// them is nil, because its methods would panic.
func Layers(rdb redis.UniversalClient) (layers []any, err error) {
	for layer, more := any(rdb), true; more && len(layers) < maxLayers; {
		if v := reflect.ValueOf(layer); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, fmt.Errorf("rdb is a %T around or of nil; want a client of go-redis v9", rdb)
		}
		layers = append(layers, layer)
		layer, more = inner(layer)
	}
	return layers, nil
}

// maxLayers bounds how many wrapped types are searched for the client.
const maxLayers = 16

// recognise reads the options of layer, and reports whether it has any.
func (c *link) recognise(layer any) bool {
	switch r := layer.(type) {
	case interface{ Options() *redis.ClusterOptions }:
		o := r.Options()
		cluster, ok := layer.(clusterClient)
		if o == nil || !ok {
			return false
		}
		c.cluster = clusterOf{cluster}
		c.replica = o.ReadOnly || o.RouteByLatency || o.RouteRandomly
		c.rely(o.ReadTimeout, o.WriteTimeout, o.PoolSize, o.MaxActiveConns)
	case interface{ Options() *redis.Options }:
		o := r.Options()
		if o == nil {
			return false
		}
		c.caches = o.ClientSideCacheConfig != nil || o.ClientSideCache != nil
		c.rely(o.ReadTimeout, o.WriteTimeout, o.PoolSize, o.MaxActiveConns)
	default:
		return false
	}
	return true
}

// rely notes the client's timeouts, and the size of its pool and the most connections that it
// makes to one server, 0 for no bound.
func (c *link) rely(read, write time.Duration, size, most int) {
	c.known, c.connections = true, size
	if most > 0 {
		c.connections = min(size, most)
	}
	if isShort(read) {
		c.longestReply = read
	}
	// With reads from replicas, go-redis asks a server for its commands before it sends the
	// first one, and nothing bounds that question.
	c.boundsReads = isShort(read) && isShort(write) && !c.replica
}

func isShort(timeout time.Duration) bool { return timeout > 0 && timeout <= longestRead }

// inner returns the client that layer wraps, if that can be seen.
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

// ReadsFromReplicas reports whether the client may read from replicas, as far as its options can be seen.
func (c *link) ReadsFromReplicas() bool { return c.replica }

// CachesLocally reports whether the client caches replies in the process, as far as its options can be seen.
func (c *link) CachesLocally() bool { return c.caches }

// IsCluster reports whether the client was recognised as a Cluster client.
func (c *link) IsCluster() bool { return c.cluster != nil }

// Subscribe opens a subscription to one channel. It connects before it returns.
func (c *link) Subscribe(ctx context.Context, channel string) PubSub {
	return c.subscribe(ctx, channel)
}

// links has the link of each go-redis client by its address. It keeps neither alive: a link lives as long as a Client
// of it, and the go-redis client as long as its link. So an address with a live link is not that of another client.
var links = struct {
	sync.Mutex
	byAddress map[uintptr]weak.Pointer[link]
}{byAddress: map[uintptr]weak.Pointer[link]{}}

// linkOf returns the link of rdb, and makes it if there is none. All handles of one go-redis
// client then share the queues of its servers, so that they do not compete for its connections
// without knowing of each other. A client that is no pointer has a link for each handle.
func linkOf(rdb redis.UniversalClient, create func() (*link, error)) (*link, error) {
	v := reflect.ValueOf(rdb)
	if v.Kind() != reflect.Pointer {
		return create()
	}
	address := v.Pointer()
	links.Lock()
	defer links.Unlock()
	if l := links.byAddress[address].Value(); l != nil && any(l.rdb) == any(rdb) {
		return l, nil
	}
	l, err := create()
	if err != nil {
		return nil, err
	}
	links.byAddress[address] = weak.Make(l)
	runtime.AddCleanup(l, forgetLink, address)
	return l, nil
}

// forgetLink removes the entry of a link that is no longer used, unless a new one took its place.
func forgetLink(address uintptr) {
	links.Lock()
	defer links.Unlock()
	if links.byAddress[address].Value() == nil {
		delete(links.byAddress, address)
	}
}
