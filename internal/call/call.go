package call

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Call is one run of a script. It is sent once. A caller that repeats it makes a new Call.
type Call struct {
	script *Script
	args   []any // "evalsha", digest, number of keys, keys…, arguments…
	mixed  bool  // the reply also has strings

	// GivesBack says that the call gives back something that others may wait for. Such a call
	// goes ahead of the other calls that wait in its lane.
	GivesBack bool
	// Node is the name of the server that the call is for, as Client.Node returns it. If it is
	// empty, the client looks it up.
	Node string
	// Done receives the outcome of a call sent by Send or SendInParts.
	Done func(reply []int64, err error)
	// Confirm asks replicas to confirm the call; nil: none. See Unconfirmed.
	Confirm *Confirm
	// Text has the strings of the reply, in order.
	Text []string

	// The command that carries the call. Only the goroutine that makes the round trip uses it.
	integers integersCommand
	anything *anythingCommand

	// state is unsentCall until a round trip takes the call or its caller withdraws it.
	state atomic.Int32
	// confirmed is the number of replicas that confirmed the call, once it has a reply.
	confirmed int32

	// The fields below belong to the wait in a lane, and the lane's mutex guards them.
	waitsIn     *queue        // the queue that the call stands in; nil: none
	ahead, next *Call         // its neighbours there
	since       time.Duration // when it was queued, measured from the birth of the lane
	turn        chan []*Call  // see lane.await
	result      *outcome      // set before the last send on turn, not under the mutex

	room [20]any // the array behind args, large enough for most calls
}

// New prepares a call of s with nkeys keys and its arguments. Pass an argument that is not
// constant as a pointer to a value that never changes: that needs no allocation of its own.
func New(s *Script, nkeys int, words ...any) *Call {
	c := &Call{script: s}
	c.args = append(append(c.room[:0], "evalsha", s.shaWord, nkeys), words...)
	return c
}

// WithText says that the script's reply also has strings. They are stored in Text.
func (c *Call) WithText() *Call {
	c.mixed = true
	return c
}

// Key returns the first key of the call.
func (c *Call) Key() string { key, _ := c.args[3].(string); return key }

// A Way is how calls reach a server. Calls that replicas confirm have lanes, pipelines and
// bounds of their own, for two reasons: other calls, above all those that give something back,
// must not wait for replicas, and the time that replicas take must not look like a server that
// does not answer.
type Way struct {
	Node     string // the name of the server; see Client.Node
	Confirms bool   // replicas confirm the calls
}

// Way returns the way of a call whose Node is set.
func (c *Call) Way() Way { return Way{c.Node, c.Confirm != nil} }

// The states of a call. A round trip and a caller that withdraws the call use one
// compare-and-swap, so exactly one of them wins.
const (
	unsentCall = iota
	takenCall
	withdrawnCall
)

// Withdraw takes back a call that its caller no longer wants. It reports whether it was in
// time; the call was then not sent, and never will be. Call it at most once.
func (c *Call) Withdraw() bool { return c.state.CompareAndSwap(unsentCall, withdrawnCall) }

// take marks the call as part of a round trip. It returns false if the call was withdrawn.
func (c *Call) take() bool { return c.state.CompareAndSwap(unsentCall, takenCall) }

// Do sends a call, alone or in a pipeline with calls of other goroutines, and returns its
// reply. If the server does not know the script, Do sends its full text.
//
// If ctx ends before the call is sent, Do returns at once with an error that matches
// ErrNotSent and ctx's error. Once the call is sent, Do waits for the answer and may outlast
// ctx, because go-redis does not interrupt a read. It returns within Bound plus the client's
// write and read timeouts, for any number of callers; if the client has no such timeouts,
// within Bound and 8 s. A call may wait longer before it is sent only if its ctx allows that,
// and only while the server answers others.
//
// The first call of a Client costs another round trip, which checks the server's version,
// unless Time or Now has asked the server before.
func (c *Client) Do(ctx context.Context, one *Call) ([]int64, error) {
	if err := c.ready(ctx, one); err != nil {
		return nil, err
	}
	o := c.laneOf(one).do(ctx, one)
	one.Text = o.text
	return o.reply, o.err
}

// ready prepares one for sending: it makes sure that the server's version is supported and
// that the call names its server.
func (c *Client) ready(ctx context.Context, one *Call) error {
	if err := c.ensureSupported(ctx, one.Key()); err != nil {
		return err
	}
	return c.route(ctx, one)
}

// sendAlone makes a round trip with one call. It ends within Bound and the client's timeouts.
func (c *Client) sendAlone(ctx context.Context, one *Call) outcome {
	if err := ctx.Err(); err != nil {
		return outcome{err: notSent(err)} // the caller has left
	}
	if one.Confirm != nil {
		return c.sendTogether([]*Call{one}, Bound)[0]
	}
	if !one.take() {
		return outcome{err: notSent(errWithdrawn)}
	}
	o, answered, began := outcome{}, true, time.Now()
	if c.boundsReads {
		o = c.sendOrTeach(ctx, began, one)
	} else {
		o, answered = within(hardBound, func() outcome { return c.sendOrTeach(ctx, began, one) })
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

// sendOrTeach sends one call. If the server does not know the script, sendOrTeach sends the
// call again in full.
func (c *Client) sendOrTeach(ctx context.Context, began time.Time, one *Call) outcome {
	ctx = c.bounded(ctx, began)
	o := c.sendOnce(ctx, one)
	if unknownScript(o.err) {
		o = c.sendOnce(ctx, one.inFull())
	}
	return o
}

// sendOnce sends one call as it is, and returns its outcome.
func (c *Client) sendOnce(ctx context.Context, one *Call) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = one.outcome(panicked(p))
		}
	}()
	err := c.rdb.Process(ctx, one.command(ctx))
	if o = one.outcome(err); o.err == nil && err != nil {
		return outcome{err: err} // a wrapped client may return the error without setting it on the command
	}
	return o
}

// inFull makes the call carry the script's text, for a server that does not know the script (a
// new server, a new primary, or after SCRIPT FLUSH). The server then knows it.
func (c *Call) inFull() *Call {
	args := append([]any(nil), c.args...)
	args[0], args[1] = "eval", c.script.source
	c.args = args
	return c
}

// integersCommand is the command of a call. go-redis must not send it again by itself: a stray
// copy could run after the caller has acted on the outcome.
type integersCommand struct {
	*redis.IntSliceCmd
	asked bool // go-redis or a hook has read the arguments
}

// anythingCommand is the command of a call whose reply also has strings.
type anythingCommand struct {
	*redis.SliceCmd
	asked bool
}

func (c *integersCommand) NoRetry() bool { return true }
func (c *anythingCommand) NoRetry() bool { return true }

// Args records that the arguments were read. They are read before they are written to a
// connection, so a command whose arguments were never read was surely not sent.
func (c *integersCommand) Args() []any { c.asked = true; return c.IntSliceCmd.Args() }
func (c *anythingCommand) Args() []any { c.asked = true; return c.SliceCmd.Args() }

// command makes a fresh command, because a processed command keeps its outcome.
func (c *Call) command(ctx context.Context) redis.Cmder {
	var cmd redis.Cmder
	if c.mixed {
		c.anything = &anythingCommand{SliceCmd: redis.NewSliceCmd(ctx, c.args...)}
		cmd = c.anything
	} else {
		c.integers = integersCommand{IntSliceCmd: redis.NewIntSliceCmd(ctx, c.args...)}
		cmd = &c.integers
	}
	// SetStepCount saves a question: a Cluster client asks a server for the step count of a
	// command that does not have one, and no ctx bounds that question.
	cmd.SetStepCount(1)
	return cmd
}

// An outcome is the result of one call.
type outcome struct {
	reply []int64
	text  []string
	err   error
}

// outcome reads the result of the command after its round trip; trip is the error of the round
// trip as a whole. Only a reply counts as an answer, because a hook that returns without
// calling the next one leaves a command with neither a value nor an error.
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
