package call

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/nested"
)

// MayCacheLocally reports whether the client caches replies in the process, or has options
// that cannot be seen and may do so.
func (c *link) MayCacheLocally() bool { return c.caches || !c.known }

// WithBound returns a ctx that ends with ctx or within Bound. That is cheap if ctx cannot end
// or has an earlier deadline.
func (c *link) WithBound(ctx context.Context) (context.Context, context.CancelFunc) {
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ctx.Done() == nil || (ok && deadline.Sub(now) <= Bound) {
		return c.bounded(ctx, now), func() {}
	}
	return context.WithTimeout(nested.Calm{Context: ctx}, Bound)
}

// ErrSlow is the error of a look-up that had no answer within its bound. It does not match a deadline of the caller.
var ErrSlow = fmt.Errorf("no answer within %v", Bound)

// Get reads a string. The error redis.Nil says that there is none. ctx must come from WithBound. It bounds the wait for
// a connection, or for a round trip that is shared with other callers, and go-redis's retries. A read that is under way
// is bounded by the client's ReadTimeout.
func (c *link) Get(ctx context.Context, key string) (text string, err error) {
	if c.caches { // most replies come from memory, and only if a command is sent by itself
		return c.read(ctx, key)
	}
	r := &c.serverOf(key).reads
	shared, hung := r.join(c, key)
	if shared != nil {
		return r.wait(ctx, shared[0])
	}
	defer r.ended(c, hung)
	return c.read(ctx, key)
}

// GetApart is Get on a goroutine of its own, for the library's goroutines: if a hook of the client ends the one that
// reads, that is an error, and the caller goes on.
func (c *link) GetApart(key string) (string, error) {
	r, answered := within(hardBound, func() (r Found) {
		ctx, cancel := c.WithBound(context.Background())
		defer cancel()
		r.Text, r.Err = c.Get(ctx, key)
		return r
	})
	if !answered {
		r.Err = errNoAnswer
	}
	return r.Text, r.Err
}

// read is Get in a round trip of its own, and at once.
func (c *link) read(ctx context.Context, key string) (text string, err error) {
	began := time.Now()
	if c.boundsReads {
		text, err = c.get(ctx, key)
	} else if r, answered := within(hardBound, func() Found { text, err := c.get(ctx, key); return Found{text, err} }); answered {
		text, err = r.Text, r.Err
	} else {
		err = errNoAnswer
	}
	c.Heard(key, began, err)
	return text, err
}

func (c *link) get(ctx context.Context, key string) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			text, err = "", panicked(p)
		}
	}()
	cmd := redis.NewStringCmd(ctx, "get", key)
	cmd.SetStepCount(1) // as in Call.command; the server that a Cluster client would ask may hang
	processed := tame(c.rdb.Process(ctx, cmd), cmd)
	if c.mayLookAgain(ctx, key, cmd.Err()) {
		processed = tame(c.rdb.Process(ctx, cmd), cmd)
	}
	if text, err = cmd.Result(); err == nil && processed != nil {
		text, err = "", processed // a wrapped client may return the error without setting it on the command
	}
	c.failed(key, err)
	return text, err
}

// Found is the result of GetMany for one key. Err is redis.Nil if there is no value.
type Found struct {
	Text string
	Err  error
}

// GetMany is Get for keys that are on one server, as Node says, in one pipeline if it need not
// share round trips with other callers. Each key has its own outcome.
func (c *link) GetMany(ctx context.Context, keys []string) []Found {
	r := &c.serverOf(keys[0]).reads
	shared, hung := r.join(c, keys...)
	if shared == nil {
		defer r.ended(c, hung)
		return c.readMany(ctx, keys)
	}
	all := make([]Found, len(keys))
	for i, one := range shared {
		all[i].Text, all[i].Err = r.wait(ctx, one)
	}
	return all
}

// A lookUp is a command of readMany. The client library may send it again: it changes nothing.
type lookUp struct {
	*redis.Cmd
	tally
}

func (*lookUp) NoRetry() bool      { return false }
func (c *lookUp) Args() []any      { c.read(c.Cmd); return c.Cmd.Args() }
func (c *lookUp) SetErr(err error) { c.asks(err); c.Cmd.SetErr(err) }

// readMany reads strings in one pipeline. If the client's hooks leave a command without a reply
// and without an error, that is an error, not "there is none".
func (c *link) readMany(ctx context.Context, keys []string) []Found {
	all := make([]Found, len(keys))
	cmds := make([]redis.Cmder, len(keys))
	replies := make([]*lookUp, len(keys))
	for i, key := range keys {
		replies[i] = &lookUp{redis.NewCmd(ctx, "get", key), tally{link: c, key: key}}
		replies[i].SetStepCount(1)
		cmds[i] = replies[i]
	}
	began := time.Now()
	run := func() error {
		err := c.exec(ctx, c.rdb, cmds)
		if c.mayLookAgain(ctx, keys[0], err) {
			err = c.exec(ctx, c.rdb, cmds)
		}
		return err
	}
	var trip error
	answered := true
	if c.boundsReads {
		trip = run()
	} else {
		trip, answered = within(hardBound, run)
	}
	var noticed error
	heard := errNoAnswer
	for i := range all {
		if !answered { // it is still under way, so its commands must not be read
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
		if err = all[i].Err; i == 0 || HasAnswer(err) {
			heard = err
		}
		if err != nil && (noticed == nil || network(err)) {
			noticed = err
		}
	}
	c.Heard(keys[0], began, heard)
	c.failed(keys[0], noticed)
	return all
}

// ByNode calls f once for each server, at the same time, with the indices of the keys that
// this server has. It returns when all calls of f have returned.
func (c *link) ByNode(keys []string, f func(which []int)) {
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
