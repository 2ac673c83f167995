package call

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// unknownNode is the name of a key's server while no topology is known.
const unknownNode = "?"

// reloadPause is the shortest time between two reloads of the topology that were caused only by a caller's deadline.
const reloadPause = time.Second

// EndedCtx is already cancelled. A look-up with it only reads the known topology and never dials. It bounds no read and
// no write, but keeps go-redis from reconnecting by itself, under a lock that closing a subscription would wait for.
var EndedCtx = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// A server is what a link knows of one server.
type server struct {
	link       *link
	queue      *serverQueue // of the calls that no replica confirms
	confirming sync.Map     // *serverQueue by its Confirm
	clock      clock
	breaker    *breaker
	reads      reads
	sweeps     shared[struct{}] // see link.sweep
}

func newServer(c *link) *server {
	s := &server{link: c, breaker: &breaker{link: c, born: time.Now(), watchers: map[*watcher]struct{}{}}}
	s.queue = newQueue(s, Confirm{}, minPipelineBytes)
	return s
}

// server returns what is known of the server with this Node.
func (c *link) server(node string) *server {
	if node == "" {
		return c.only
	}
	s, known := c.servers.Load(node)
	if !known {
		s, _ = c.servers.LoadOrStore(node, newServer(c))
	}
	return s.(*server)
}

// serverOf is server for the one that has key.
func (c *link) serverOf(key string) *server { return c.server(c.Node(key)) }

// Node returns the name of the server that has key, as far as the client knows. Calls for one node are sent together,
// so that a node that hangs does not delay calls to others. Node never blocks. It returns "" if there is only one
// server, and a name apart for a slot that moves (see asked). While a Cluster's topology is unknown, Node returns "?"
// and asks for the topology in the background.
func (c *link) Node(key string) string {
	if c.cluster == nil {
		return ""
	}
	node := c.primary(key)
	if node == nil {
		return unknownNode
	}
	return c.apart(node.addr(), key)
}

// Server returns the Node of a sharded channel, and a function that subscribes to the channel
// at that server. The function is nil if no server is known to have the channel's slot.
func (c *link) Server(channel string) (name string, subscribe func(ctx context.Context) PubSub) {
	node := c.primary(channel)
	if node == nil {
		return unknownNode, nil
	}
	return node.addr(), func(ctx context.Context) PubSub { return node.ssubscribe(ctx, channel) }
}

// primary returns the server of a Cluster that has key. It never blocks. It returns nil if the
// topology is unknown, and then asks for it in the background, or if the client is closed.
func (c *link) primary(key string) primary {
	if !c.mapped.Load() {
		c.askTopology(key)
		return nil
	}
	node, err := c.cluster.primary(EndedCtx, key)
	if err != nil {
		return nil
	}
	return node
}

// route sets the server of a call that has none yet. If a Cluster's topology is unknown, route
// waits for it until ctx ends.
func (c *link) route(ctx context.Context, one *Call) error {
	if c.cluster == nil || (one.Node != "" && one.Node != unknownNode) {
		return nil
	}
	if err := c.awaitTopology(ctx, one.Key()); err != nil {
		return NotSent(err)
	}
	one.Node = c.Node(one.Key())
	return nil
}

// awaitTopology waits until a Cluster's topology is known or ctx ends. It returns at once if
// the topology is known or the client is not one of a Cluster.
func (c *link) awaitTopology(ctx context.Context, key string) error {
	if c.cluster == nil || c.mapped.Load() {
		return nil
	}
	_, err := c.askTopology(key).wait(ctx)
	return err
}

// askTopology makes go-redis look up a node, and thereby load the topology.
func (c *link) askTopology(key string) *answer[struct{}] {
	return c.topology.ask(inBackground, func(ctx context.Context) (struct{}, error) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(ctx, Bound)
		defer cancel()
		_, err := c.cluster.primary(ctx, key)
		switch {
		case err == nil:
			c.mapped.Store(true)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			err = TooLate(NotSent(err), began)
		}
		c.server(unknownNode).breaker.outcome(began, err)
		return struct{}{}, err
	})
}

// Notice reloads a Cluster's topology if err says that a node could not be reached, or that it
// is no longer what the topology says. Otherwise go-redis would go on asking the old primary
// for a minute. go-redis reloads in the background, one reload at a time.
func (c *link) Notice(err error) {
	if c.cluster == nil || err == nil {
		return
	}
	text := serverError(err)
	switch {
	case network(err), strings.HasPrefix(text, "READONLY"), strings.HasPrefix(text, "CLUSTERDOWN"), strings.HasPrefix(text, "MOVED"):
	case errors.Is(err, context.DeadlineExceeded):
		// The caller's own deadline may be short, so this need not be the server's fault.
		now, last := time.Now(), c.reloaded.Load()
		if (last != nil && now.Sub(*last) < reloadPause) || !c.reloaded.CompareAndSwap(last, &now) {
			return
		}
	default:
		return
	}
	c.cluster.ReloadState(context.Background())
}

// timeScript returns the server's clock, in seconds and µs, and its version. It is a script so that the server that has
// the key answers. Redis tells scripts its version from 7.0 on. An older server is asked with INFO, if its user may run
// that. The version is empty if the server does not tell it, as with miniredis.
var timeScript = NewScript("time", `local now = redis.call('TIME')
local version = redis.REDIS_VERSION
if not version then
  local info = redis.pcall('INFO', 'server')
  version = type(info) == 'string' and string.match(info, 'redis_version:([%d.]+)')
end
return {tonumber(now[1]), tonumber(now[2]), version or ''}
`)

// A Sample is what a server's clock showed at some moment between Sent and Got, two times of the local monotonic clock.
type Sample struct {
	Micros    int64 // the server's clock, in µs since 1970
	Sent, Got time.Time
}

// Earliest returns the earliest local time at which the server's clock can have shown us.
// Deadlines are counted from it.
func (s Sample) Earliest(us int64) time.Time {
	return s.Sent.Add(time.Duration(us-s.Micros) * time.Microsecond)
}

// Latest returns the latest time that the server's clock can show at the local time t.
func (s Sample) Latest(t time.Time) int64 {
	return s.Micros + t.Sub(s.Sent).Microseconds()
}

// maxSampleAge is the age at which a sample is replaced: clocks run at slightly different rates.
const maxSampleAge = 30 * time.Second

// Refined returns the sample that says more: s, or a new one if it bounds the clock more closely, or if s contradicts
// it (the clock was set forth) or is too old, as the zero Sample is. The longer a call was under way, the less its sample
// says. A clock that was set forth by less than the width of the new sample may go unseen until one contradicts s.
func (s Sample) Refined(by Sample) Sample {
	latest := s.Latest(by.Got)
	if by.Got.Sub(s.Got) >= maxSampleAge || by.Micros > latest || latest >= by.Latest(by.Got) {
		return by
	}
	return s
}

// A clock holds what is known of one server's clock. Each primary of a Cluster has its own.
type clock struct {
	question shared[Sample]

	mu      sync.Mutex // guards the fields below
	sample  Sample     // the zero Sample: none is known
	doubted time.Time  // see Doubt
}

// A Question is a request for the server's time that is under way. All callers that need its answer share it.
type Question = answer[Sample]

// Now returns the latest time, in µs, that the clock of the server that has key can show now. It does not block. If
// that server has not told its time yet, Now returns a Question to wait for. Callers call Now again after its answer,
// which may only say which server has key.
func (c *Client) Now(key string) (us int64, wait *Question) {
	now := time.Now()
	k := &c.serverOf(key).clock
	k.mu.Lock()
	sample := k.sample
	k.mu.Unlock()
	if now.Sub(sample.Got) > maxSampleAge {
		wait = c.askTime(k, key)
	}
	if sample.Got.IsZero() {
		return 0, wait
	}
	return sample.Latest(now), nil
}

// latest returns the latest time that the clock can show at the local time t, if it is known.
func (k *clock) latest(t time.Time) (us int64, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sample.Latest(t), !k.sample.Got.IsZero()
}

// Time is Now, but waits for the answer if the time is not known yet, until ctx ends.
func (c *Client) Time(ctx context.Context, key string) (int64, error) {
	for {
		us, wait := c.Now(key)
		if wait == nil {
			return us, nil
		}
		if _, err := wait.wait(ctx); err != nil {
			return 0, err
		}
	}
}

// Doubt is told that the server that has key was seen to show a time well after the latest that its clock can show, as
// far as is known. It asks for the time anew, once a second at most, since what was seen may be forged.
func (c *Client) Doubt(key string) {
	k, now := &c.serverOf(key).clock, time.Now()
	k.mu.Lock()
	due := now.Sub(k.doubted) >= time.Second
	if due {
		k.doubted = now
	}
	k.mu.Unlock()
	if due {
		c.askTime(k, key)
	}
}

// Learn refines what is known of the clock of the server that has key.
func (c *link) Learn(key string, s Sample) {
	k := &c.serverOf(key).clock
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sample = k.sample.Refined(s)
}

// Trip returns how long a call to the server that has key was under way: the shortest of the last half minute,
// as a rule. 0: none is known.
func (c *link) Trip(key string) time.Duration {
	k := &c.serverOf(key).clock
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sample.Got.Sub(k.sample.Sent)
}

// askTime asks the server that has key for its time, unless a question is under way.
func (c *Client) askTime(k *clock, key string) *Question {
	return k.question.ask(c.spawn, func(ctx context.Context) (Sample, error) {
		if err := c.awaitTopology(ctx, key); err != nil {
			return Sample{}, err
		}
		if &c.serverOf(key).clock != k {
			return Sample{}, nil // its server was not known yet: it is asked next, beside the other ones
		}
		s, err := c.readTime(ctx, key)
		if err == nil {
			c.Learn(key, s)
		}
		return s, err
	})
}

// maxTimeTries is how often the question for the time is sent. A late copy of it changes
// nothing, so a lost reply need not fail the caller.
const maxTimeTries = 3

// readTime asks for the time until it is answered, at most maxTimeTries times. No try begins after half of Bound.
func (c *Client) readTime(ctx context.Context, key string) (Sample, error) {
	began := time.Now()
	for n := 1; ; n++ {
		r, err := c.readTimeOnce(ctx, key)
		if err == nil || n == maxTimeTries || Classify(err) == Refused || ctx.Err() != nil || time.Since(began) > Bound/2 {
			return r, err
		}
		time.Sleep(Backoff(n))
	}
}

// readTimeOnce asks for the time once. The answer also says whether the server can be used.
func (c *Client) readTimeOnce(ctx context.Context, key string) (Sample, error) {
	one := New(timeScript, 1, key).WithText().inFull()
	if err := c.route(ctx, one); err != nil {
		return Sample{}, err
	}
	o := c.queueOf(one).do(ctx, one)
	r := Sample{Sent: one.Sent, Got: time.Now()}
	if o.err == nil && (len(o.reply) != 2 || len(o.text) != 1) {
		o.err = &unsupported{fmt.Sprintf("the server answered the question for its time with %v %q", o.reply, o.text)}
	}
	if !c.checked.Load() {
		if err := c.supported(ctx, o); err != nil {
			return Sample{}, err
		}
	}
	if o.err != nil {
		return Sample{}, o.err
	}
	r.Micros = o.reply[0]*1e6 + o.reply[1]
	return r, nil
}

// minVersion is the first major version of Redis that has all the commands of the scripts.
const minVersion = 7

// ensureSupported makes sure, before the first call, that the scripts run on the server. It asks
// for the server's time, because that question also checks the version.
func (c *Client) ensureSupported(ctx context.Context, key string) error {
	for !c.checked.Load() {
		if _, err := c.askTime(&c.serverOf(key).clock, key).wait(ctx); err != nil {
			return NotSent(err)
		}
	}
	return nil
}

// supported returns an error if the server that answered with o cannot be used. It sends INFO
// if the server refused the script, or if the client may hide a Cluster client.
func (c *link) supported(ctx context.Context, o outcome) error {
	var version, mode string
	switch {
	case o.err == nil && o.text[0] != "" && c.known:
		version = o.text[0]
	case o.err == nil && c.known:
	case o.err == nil || Classify(o.err) == Refused:
		// INFO fails if the user may not run it, or if the server does not know it.
		info, _ := within(hardBound, func() string {
			defer func() { _ = recover() }() // a hook panicked: the version stays unknown
			return c.rdb.Info(c.bounded(ctx, time.Now()), "server").Val()
		})
		version, mode = field(info, "redis_version"), field(info, "redis_mode")+field(info, "server_mode")
	}
	if major, err := strconv.Atoi(firstNumber.FindString(version)); err == nil && major < minVersion {
		return &unsupported{fmt.Sprintf("the server is Redis %s; want Redis %d.0 or later", version, minVersion)}
	}
	if !c.known && mode == "cluster" {
		return &unsupported{fmt.Sprintf("rdb is a %T, which hides a Cluster client; "+
			"want one that embeds it or has a method Unwrap() redis.UniversalClient", c.rdb)}
	}
	if o.err == nil {
		c.checked.Store(true)
	}
	return nil
}

var firstNumber = regexp.MustCompile(`^\d+`)

// field returns the value of a field of INFO.
func field(info, name string) string {
	m := regexp.MustCompile(`(?m)^` + name + `:(\S+)`).FindStringSubmatch(info)
	if m == nil {
		return ""
	}
	return m[1]
}
