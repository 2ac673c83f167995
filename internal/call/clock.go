package call

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// minVersion is the first version of Redis that the scripts need: 7.0 has the
// commands that they use.
const minVersion = 7

// timeScript answers with the server's clock, in seconds and µs, and its version.
// It is a script so that the server that has the key answers. Redis tells scripts
// its version from 7.0 on; an older server is asked, as far as its user may ask.
// An empty version is one of a server that does not tell, such as miniredis.
var timeScript = NewScript("time", `local now = redis.call('TIME')
local version = redis.REDIS_VERSION
if not version then
  local info = redis.pcall('INFO', 'server')
  version = type(info) == 'string' and string.match(info, 'redis_version:([%d.]+)')
end
return {tonumber(now[1]), tonumber(now[2]), version or ''}
`)

// Reading is what a server's clock showed at a moment between Sent and Got.
type Reading struct {
	Micros    int64 // the server's clock, in µs since 1970
	Sent, Got time.Time
}

// Time asks the server that has key for its clock, in µs since 1970, with
// a question of its own. Like Do it may outlast ctx.
func (c *Client) Time(ctx context.Context, key string) (int64, error) {
	r, err := c.read(ctx, key)
	return r.Micros, err
}

// Clock is Time for many callers: one question to a server is under way at
// a time, and those who ask meanwhile share the answer, which says when it was
// sent. Clock returns when ctx ends.
func (c *Client) Clock(ctx context.Context, key string) (Reading, error) {
	if err := c.awaitTopology(ctx, key); err != nil {
		return Reading{}, err
	}
	node := c.Node(key)
	clock, ok := c.clocks.Load(node)
	if !ok {
		clock, _ = c.clocks.LoadOrStore(node, new(shared[Reading]))
	}
	return clock.(*shared[Reading]).ask(func(ctx context.Context) (Reading, error) { return c.read(ctx, key) }).wait(ctx)
}

// check sees to it, before the first call, that the server is one that the
// scripts run on.
func (c *Client) check(ctx context.Context, key string) error {
	if c.checked.Load() {
		return nil
	}
	if _, err := c.Clock(ctx, key); err != nil {
		return notSent(err)
	}
	return nil
}

// maxTimeTries is how often the question for the time is asked: nothing is changed by
// a copy of it that comes late, so a lost reply need not fail the caller.
const maxTimeTries = 3

// read asks for the time until it is answered, a few times, and begins no further try
// after half of Bound.
func (c *Client) read(ctx context.Context, key string) (Reading, error) {
	began := time.Now()
	for n := 1; ; n++ {
		r, err := c.readOnce(ctx, key)
		if err == nil || n == maxTimeTries || Classify(err) == Refused || ctx.Err() != nil || time.Since(began) > Bound/2 {
			return r, err
		}
		time.Sleep(Backoff(n))
	}
}

func (c *Client) readOnce(ctx context.Context, key string) (Reading, error) {
	one := New(timeScript, 1, key).WithText().inFull()
	if err := c.route(ctx, one); err != nil {
		return Reading{}, err
	}
	r := Reading{Sent: time.Now()}
	o := c.laneOf(one).do(ctx, one)
	r.Got = time.Now()
	if o.err == nil && (len(o.reply) != 2 || len(o.text) != 1) {
		o.err = &unsupported{fmt.Sprintf("the server answered the question for its time with %v %q", o.reply, o.text)}
	}
	if !c.checked.Load() {
		if err := c.supported(ctx, o); err != nil {
			return Reading{}, err
		}
	}
	if o.err != nil {
		return Reading{}, o.err
	}
	r.Micros = o.reply[0]*1e6 + o.reply[1]
	return r, nil
}

// supported says what is wrong with the server that answered with o. A server
// that refuses the script, or a client that may hide a Cluster, takes another
// question.
func (c *Client) supported(ctx context.Context, o outcome) error {
	var version, mode string
	switch {
	case o.err == nil && o.text[0] != "" && c.known:
		version = o.text[0]
	case o.err == nil && c.known:
	case o.err == nil || Classify(o.err) == Refused:
		// It fails where the user may not ask, or the server does not know it.
		info, _ := within(hardBound, func() string {
			defer func() { _ = recover() }() // of a hook: the version stays unknown
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

// field is the value of a field of INFO.
func field(info, name string) string {
	m := regexp.MustCompile(`(?m)^` + name + `:(\S+)`).FindStringSubmatch(info)
	if m == nil {
		return ""
	}
	return m[1]
}
