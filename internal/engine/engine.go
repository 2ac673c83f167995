// Package engine is the scripts' face in Go: a method a script, with typed
// requests and replies. It knows nothing of waiting or holding; it knows how a
// script is sent, once, and what an error tells about whether it ran.
package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// AskEvery is how often waiters give a sign of life: shorter than the first
// term of a grant to a waiter (2 s, PROBATION in the scripts), so that
// one who missed its message asks in time, which is shorter than the time that
// a waiter keeps its place without a sign (4.5 s, ALIVE there).
const AskEvery = 1500 * time.Millisecond

// MaxAsk is how many waiters one ask may name.
const MaxAsk = 250

// Engine sends scripts through one client.
type Engine struct {
	rdb     redis.UniversalClient
	cluster *redis.ClusterClient // rdb where it is one, else nil
	read    time.Duration        // the client's bound on a read, 0 = unknown
	lanes   sync.Map             // of each server by its name: *lane
}

// CallBound is how long a call that nobody can cancel may wait for a connection,
// readBound how long a client may let it wait for the answer: go-redis's default.
const (
	CallBound = 3 * time.Second
	readBound = 5 * time.Second
)

// New makes an engine. It refuses a Ring: its shards are chosen by the client,
// so that a channel's shard need not be its key's, and resharding loses leases.
func New(rdb redis.UniversalClient) (*Engine, error) {
	switch c := rdb.(type) {
	case nil:
		return nil, fmt.Errorf("rdb is nil; want a client of go-redis v9")
	case *redis.Ring:
		return nil, fmt.Errorf("rdb is a *redis.Ring; want a single server, Sentinel or Cluster client")
	case *redis.ClusterClient:
		return &Engine{rdb: rdb, cluster: c, read: c.Options().ReadTimeout}, nil
	case *redis.Client:
		return &Engine{rdb: rdb, read: c.Options().ReadTimeout}, nil
	}
	return &Engine{rdb: rdb}, nil
}

// Bounded reports whether the client bounds each read itself, to 5 s or less: then a call that nobody waits beside may be made on the caller's own
// goroutine, which is quicker by two switches.
func (e *Engine) Bounded() bool { return e.read > 0 && e.read <= readBound }

// Resource is a key of a family with the Redis keys that the scripts take, made
// once a request.
type Resource struct {
	keys.Resource
	Fenced bool // grants issue a token
	Flight bool // it is a cached value, and what is held is the right to load it

	words [4]any // holders, queue, alive, limit or fence
	more  []any  // of a flight: value, failure, landed, aside
}

// NewResource names the Redis keys of a resource.
func NewResource(r keys.Resource, fenced bool) *Resource {
	aux := "limit"
	if fenced {
		aux = "fence"
	}
	return &Resource{Resource: r, Fenced: fenced, words: [4]any{r.Part("holders"), r.Part("queue"), r.Part("alive"), r.Part(aux)}}
}

// NewFlight names the Redis keys of a cached value.
func NewFlight(r keys.Resource) *Resource {
	f := NewResource(r, true)
	f.Flight = true
	f.more = []any{r.Part("value"), r.Part("failure"), r.Part("landed"), r.Part("aside")}
	return f
}

// Holders is the resource's first key: it tells resources apart.
func (r *Resource) Holders() string { return r.words[0].(string) }

// Request is what an attempt asks for. It travels with the member, so that
// whoever hands a permit on knows it.
type Request struct {
	*Resource
	Seq     uint64
	Permits int
	TTL     time.Duration
	Limit   int
	Awaits  uint64 // of a flight: the token of the load that it waits for

	member  string
	permits int   // as the scripts take it: 0 = one, fenced
	ttl     int64 // ms
}

// NewRequest names an attempt of handle, which is 22 characters of base64url;
// seq is its number there, never used twice.
func NewRequest(r *Resource, handle string, seq uint64, permits int, ttl time.Duration, limit int) *Request {
	buf := make([]byte, 0, 64)
	buf = append(buf, handle...)
	buf = append(buf, '.')
	buf = strconv.AppendUint(buf, seq, 10)
	buf = append(buf, '.')
	buf = strconv.AppendInt(buf, int64(permits), 10)
	buf = append(buf, '.')
	buf = strconv.AppendInt(buf, millis(ttl), 10)
	buf = append(buf, '.')
	buf = strconv.AppendInt(buf, int64(limit), 10)
	q := &Request{Resource: r, Seq: seq, Permits: permits, TTL: ttl, Limit: limit, member: string(buf), permits: permits, ttl: millis(ttl)}
	if r.Fenced {
		q.permits = 0
	}
	return q
}

// millis rounds up: a lease is never shorter than what was asked for.
func millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Time asks the server for its clock, in µs.
func (e *Engine) Time(ctx context.Context) (int64, error) {
	t, err := e.rdb.Time(ctx).Result()
	if err != nil {
		e.noticed(err)
		return 0, err
	}
	return t.UnixMicro(), nil
}

// Subscribe opens a subscription on one channel.
func (e *Engine) Subscribe(ctx context.Context, channel string) *redis.PubSub {
	return e.rdb.Subscribe(ctx, channel)
}

// Do sends a call and waits for the answer. It may outlast ctx: go-redis does
// not interrupt a read. An unknown script is sent again in full.
func (e *Engine) Do(ctx context.Context, c *Call) ([]int64, error) {
	e.lane(ctx, c).do(ctx, c)
	reply, err := c.outcome()
	e.noticed(err)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && Classify(err) == Unknown {
		err = errSlow // the lane's bound has passed, and not that of the caller's ctx
	}
	return reply, err
}

var errSlow = fmt.Errorf("no answer within %v", CallBound)

// lane is what carries calls to the server that c is for.
func (e *Engine) lane(ctx context.Context, c *Call) *lane {
	node := c.Node
	if node == "" {
		node = e.node(ctx, c.key())
	}
	if l, ok := e.lanes.Load(node); ok {
		return l.(*lane)
	}
	l, _ := e.lanes.LoadOrStore(node, &lane{e: e})
	return l.(*lane)
}

// alone sends a call in a round trip of its own.
func (e *Engine) alone(ctx context.Context, c *Call) {
	if unknownScript(e.rdb.Process(ctx, c.command(ctx))) {
		c.inFull()
		_ = e.rdb.Process(ctx, c.command(ctx))
	}
}

// SendInParts is Send in pipelines no longer than those of a lane, several at a
// time: for what was sent in one before, and not answered.
func (e *Engine) SendInParts(ctx context.Context, calls []*Call) {
	var under sync.WaitGroup
	room := make(chan struct{}, width)
	for len(calls) > 0 {
		some := calls[:fitting(calls)]
		calls = calls[len(some):]
		room <- struct{}{}
		under.Go(func() {
			e.Send(ctx, some)
			<-room
		})
	}
	under.Wait()
}

// Send sends calls in one pipeline, which go-redis splits by node in a Cluster,
// and gives each its outcome through Done.
func (e *Engine) Send(ctx context.Context, calls []*Call) {
	e.together(ctx, calls)
	for _, c := range calls {
		reply, err := c.outcome()
		e.noticed(err)
		if c.Done != nil {
			c.Done(reply, err)
		}
	}
}

// together sends calls in one pipeline. Those whose script a server did not know
// are sent again: the first of them in full and by itself, since the text is long,
// the rest by name; and so on, for there may be other scripts among them, or
// servers, or one that forgot its scripts meanwhile.
func (e *Engine) together(ctx context.Context, calls []*Call) {
	e.pipeline(ctx, calls)
	for unknown := unknownOf(calls); len(unknown) > 0; {
		unknown[0].inFull()
		e.pipeline(ctx, unknown[:1])
		if unknown = unknown[1:]; len(unknown) > 0 {
			e.pipeline(ctx, unknown)
			unknown = unknownOf(unknown)
		}
	}
}

// unknownOf is those of calls whose script the server did not know.
func unknownOf(calls []*Call) (unknown []*Call) {
	for _, c := range calls {
		if unknownScript(c.cmd.Err()) {
			unknown = append(unknown, c)
		}
	}
	return unknown
}

func (e *Engine) pipeline(ctx context.Context, calls []*Call) {
	pipe := e.rdb.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, c.command(ctx))
	}
	_, _ = pipe.Exec(ctx) // each command has its own outcome
}

// noticed reloads a Cluster's topology when a node could not be talked to:
// go-redis would go on asking the old primary for a minute.
func (e *Engine) noticed(err error) {
	if e.cluster == nil || err == nil {
		return
	}
	if network(err) || strings.HasPrefix(err.Error(), "READONLY") || strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
		e.cluster.ReloadState(context.Background())
	}
}

// Node names the server that has the resource, as far as the client knows: calls
// for one node go together, so that a node that hangs delays no other's. Empty
// where there is one server.
func (e *Engine) Node(r *Resource) string { return e.node(context.Background(), r.Holders()) }

func (e *Engine) node(ctx context.Context, key string) string {
	if e.cluster == nil {
		return ""
	}
	node, err := e.cluster.MasterForKey(ctx, key)
	if err != nil {
		return "?"
	}
	return node.Options().Addr
}

// ID names the attempt in listings and to operators. Eight characters of the
// handle and the attempt's number are no two alike on one key; the owner id,
// with all of its random bits, is not shown.
func (r *Request) ID() string {
	return r.member[:8] + "-" + strconv.FormatUint(r.Seq, 10)
}
