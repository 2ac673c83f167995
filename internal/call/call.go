package call

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one run of a script. It is sent once: a caller that repeats it makes a
// new one.
type Call struct {
	script *Script
	args   []any // "evalsha", digest, number of keys, keys…, arguments…
	mixed  bool  // the reply has strings, too

	// GivesBack says that the call gives something back that others may wait for.
	// Such a call goes ahead of the others that wait in its lane.
	GivesBack bool
	// Node names the server that the call is for, as Client.Node does. It may be
	// empty: then the client looks it up.
	Node string
	// Done takes the outcome where Send or SendInParts sent the call.
	Done func(reply []int64, err error)
	// Confirm says that replicas are to confirm the call; nil: none. See Unconfirmed.
	Confirm *Confirm
	// Text is the strings of the reply, in their order.
	Text []string

	// The command that carries the call. Only the goroutine that makes the round
	// trip uses it.
	integers integersCommand
	anything *anythingCommand

	// state is unsent until a round trip takes the call, or its caller withdraws it.
	state atomic.Int32
	// confirmed is how many replicas confirmed the call, where it has a reply.
	confirmed int32

	// The rest is about waiting in a lane, and the lane's mutex guards it.
	waitsIn     *queue        // the queue that the call stands in, nil = none
	ahead, next *Call         // its neighbours there
	since       time.Duration // when it came, in the age of the lane
	turn        chan []*Call  // see lane.await
	result      *outcome      // set before the last send on turn, not under the mutex

	room [20]any // args live here: most calls need no more
}

// New prepares a call of s with nkeys keys and its arguments. An argument that is
// not constant is best given as a pointer to a value that never changes: that
// needs no allocation of its own.
func New(s *Script, nkeys int, words ...any) *Call {
	c := &Call{script: s}
	c.args = append(append(c.room[:0], "evalsha", s.shaWord, nkeys), words...)
	return c
}

// WithText says that the script's reply has strings, too: they go into Text.
func (c *Call) WithText() *Call {
	c.mixed = true
	return c
}

// Key is the first key of the call.
func (c *Call) Key() string { key, _ := c.args[3].(string); return key }

// The states of a call: a round trip and a caller that withdraws decide by one
// compare-and-swap which of them came first.
const (
	unsentCall = iota
	takenCall
	withdrawnCall
)

// Withdraw takes back a call whose caller does not want it any more, and reports
// whether it was in time: then the call was not sent, and never will be.
func (c *Call) Withdraw() bool {
	return c.state.CompareAndSwap(unsentCall, withdrawnCall) || c.state.Load() == withdrawnCall
}

// take says that a round trip begins with the call. False: it was withdrawn.
func (c *Call) take() bool { return c.state.CompareAndSwap(unsentCall, takenCall) }

// Do sends a call, alone or in a pipeline with those of other goroutines, and
// returns its reply. A script that the server does not know is sent in full.
//
// Where ctx ends before the call is sent, Do returns at once with an error that
// matches ErrNotSent and ctx's. After that Do waits for the answer and may
// outlast ctx: go-redis does not interrupt a read. It returns within Bound and the
// client's write and read timeouts, for any number of callers; where the client
// has none, within Bound and 8 s. Only a call whose ctx allows it waits longer
// before it is sent, and only while the server answers others.
//
// The first call of a Client costs another round trip, which checks the server's
// version, unless Time or Clock was asked before.
func (c *Client) Do(ctx context.Context, one *Call) ([]int64, error) {
	if err := c.ready(ctx, one); err != nil {
		return nil, err
	}
	o := c.laneOf(one).do(ctx, one)
	one.Text = o.text
	return o.reply, o.err
}

// ready sees to it, before a call is sent, that the server is known to be
// supported and that the call names its server.
func (c *Client) ready(ctx context.Context, one *Call) error {
	if err := c.check(ctx, one.Key()); err != nil {
		return err
	}
	return c.route(ctx, one)
}

// alone makes a round trip with one call. It ends within Bound and the client's
// timeouts.
func (c *Client) alone(ctx context.Context, one *Call) outcome {
	if err := ctx.Err(); err != nil {
		return outcome{err: notSent(err)} // the caller has left
	}
	if one.Confirm != nil {
		return c.together([]*Call{one}, Bound)[0]
	}
	if !one.take() {
		return outcome{err: notSent(errWithdrawn)}
	}
	o, answered, began := outcome{}, true, time.Now()
	if c.bounds {
		o = c.process(ctx, began, one)
	} else {
		o, answered = within(hardBound, func() outcome { return c.process(ctx, began, one) })
	}
	if !answered {
		o.err = errNoAnswer
	}
	if ctx.Err() == nil && errors.Is(o.err, context.DeadlineExceeded) {
		o.err = TooLate(o.err, began)
	}
	c.Notice(o.err)
	return o
}

// process sends one call, and again in full where the server does not know its
// script.
func (c *Client) process(ctx context.Context, began time.Time, one *Call) outcome {
	ctx = c.bounded(ctx, began)
	o := c.single(ctx, one)
	if unknownScript(o.err) {
		o = c.single(ctx, one.inFull())
	}
	return o
}

func (c *Client) single(ctx context.Context, one *Call) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = one.outcome(panicked(p))
		}
	}()
	err := c.rdb.Process(ctx, one.command(ctx))
	if o = one.outcome(err); o.err == nil && err != nil {
		return outcome{err: err} // a wrapped client need not tell the command
	}
	return o
}

// inFull makes the call carry the script's text, for a server that does not know
// the script (a new one, a new primary, SCRIPT FLUSH). The server then knows it.
func (c *Call) inFull() *Call {
	args := append([]any(nil), c.args...)
	args[0], args[1] = "eval", c.script.source
	c.args = args
	return c
}

// integersCommand is the command of a call. go-redis must not send it again by
// itself: a stray copy could run after the caller settled with its outcome.
type integersCommand struct {
	*redis.IntSliceCmd
	asked bool // go-redis, or a hook, has read the arguments
}

// anythingCommand is the command of a call whose reply has strings, too.
type anythingCommand struct {
	*redis.SliceCmd
	asked bool
}

func (c *integersCommand) NoRetry() bool { return true }
func (c *anythingCommand) NoRetry() bool { return true }

// Args are read before they are written to a connection. So a command whose
// arguments nobody has read was surely not sent.
func (c *integersCommand) Args() []any { c.asked = true; return c.IntSliceCmd.Args() }
func (c *anythingCommand) Args() []any { c.asked = true; return c.SliceCmd.Args() }

// command makes a fresh command: one that was processed keeps its outcome.
func (c *Call) command(ctx context.Context) redis.Cmder {
	var cmd redis.Cmder
	if c.mixed {
		c.anything = &anythingCommand{SliceCmd: redis.NewSliceCmd(ctx, c.args...)}
		cmd = c.anything
	} else {
		c.integers = integersCommand{IntSliceCmd: redis.NewIntSliceCmd(ctx, c.args...)}
		cmd = &c.integers
	}
	// A Cluster client asks a server for the steps of a command that does not say
	// them, and no ctx bounds that question.
	cmd.SetStepCount(1)
	return cmd
}

// outcome is what came back for one call.
type outcome struct {
	reply []int64
	text  []string
	err   error
}

// outcome reads the command after its round trip, which as a whole ended with
// err. Only a reply counts as an answer: a hook that returns without calling the
// next one leaves a command with neither a value nor an error.
func (c *Call) outcome(trip error) (o outcome) {
	var none, asked bool
	if c.mixed {
		var all []any
		all, o.err = c.anything.Result()
		none, asked = all == nil, c.anything.asked
		for _, word := range all {
			switch word := word.(type) {
			case int64:
				o.reply = append(o.reply, word)
			case string:
				o.text = append(o.text, word)
			}
		}
	} else {
		o.reply, o.err = c.integers.Result()
		none, asked = o.reply == nil, c.integers.asked
	}
	switch {
	case o.err == nil && none && !asked:
		o.err = notSent(trip)
	case o.err == nil && none:
		o.err = noReply(trip)
	case o.err != nil && !asked:
		o.err = notSent(o.err)
	}
	if o.err != nil {
		o.reply, o.text = nil, nil
	}
	return o
}
