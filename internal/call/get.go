package call

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// MayCacheLocally reports whether the client caches replies in the process, or may:
// its options cannot be seen.
func (c *Client) MayCacheLocally() bool { return c.caches || !c.known }

// WithBound is ctx that ends within Bound, too. It costs little where ctx cannot end,
// or ends earlier by itself.
func (c *Client) WithBound(ctx context.Context) (context.Context, context.CancelFunc) {
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ctx.Done() == nil || (ok && deadline.Sub(now) <= Bound) {
		return c.bounded(ctx, now), func() {}
	}
	return context.WithTimeout(ctx, Bound)
}

// ErrSlow is what comes of a look-up that had no answer when its bound was reached. It
// is no deadline of the caller's.
var ErrSlow = fmt.Errorf("no answer within %v", Bound)

// Get reads a string; redis.Nil says that there is none. ctx, which WithBound has
// made, bounds the wait for a connection and go-redis's retries; a read that is under
// way ends by the client's ReadTimeout.
func (c *Client) Get(ctx context.Context, key string) (string, error) {
	if c.bounds {
		return c.get(ctx, key)
	}
	type reply struct {
		text string
		err  error
	}
	r, answered := within(hardBound, func() reply { text, err := c.get(ctx, key); return reply{text, err} })
	if !answered {
		return "", errNoAnswer
	}
	return r.text, r.err
}

func (c *Client) get(ctx context.Context, key string) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			text, err = "", panicked(p)
		}
	}()
	cmd := redis.NewStringCmd(ctx, "get", key)
	cmd.SetStepCount(1) // see Call.command: the server that a Cluster client asks may be a sick one
	processed := c.rdb.Process(ctx, cmd)
	if text, err = cmd.Result(); err == nil && processed != nil {
		text, err = "", processed // a wrapped client need not tell the command
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		c.Notice(err)
	}
	return text, err
}

// Found is what GetMany found at one key. Err is redis.Nil where there is nothing.
type Found struct {
	Text string
	Err  error
}

// GetMany reads strings that one server has, as Node tells, in one pipeline. Each has
// an outcome of its own: where the client's hooks leave a command without a reply and
// without an error, that is an error, and not "there is none".
func (c *Client) GetMany(ctx context.Context, keys []string) []Found {
	all := make([]Found, len(keys))
	cmds := make([]redis.Cmder, len(keys))
	replies := make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		replies[i] = redis.NewCmd(ctx, "get", key)
		replies[i].SetStepCount(1)
		cmds[i] = replies[i]
	}
	run := func() error { return c.exec(ctx, c.rdb, cmds) }
	var trip error
	answered := true
	if c.bounds {
		trip = run()
	} else {
		trip, answered = within(hardBound, run)
	}
	var noticed error
	for i := range all {
		if !answered { // it is still under way: the commands must not be read
			all[i].Err = errNoAnswer
			continue
		}
		reply, err := replies[i].Result()
		text, isText := reply.(string)
		switch {
		case err != nil:
			all[i].Err = err
		case isText:
			all[i].Text = text
		default:
			all[i].Err = noReply(trip)
		}
		if err := all[i].Err; err != nil && !errors.Is(err, redis.Nil) && (noticed == nil || network(err)) {
			noticed = err
		}
	}
	c.Notice(noticed)
	return all
}

// ByNode calls f for the keys of each server, as indices of keys, and for all servers
// at the same time. It returns when every call of f has.
func (c *Client) ByNode(keys []string, f func(which []int)) {
	byNode := map[string][]int{}
	for i, key := range keys {
		node := c.Node(key)
		byNode[node] = append(byNode[node], i)
	}
	if len(byNode) == 1 {
		for _, which := range byNode {
			f(which)
		}
		return
	}
	var all sync.WaitGroup
	for _, which := range byNode {
		all.Go(func() { f(which) })
	}
	all.Wait()
}
