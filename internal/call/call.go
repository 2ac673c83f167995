package call

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Call is one run of a script. It is sent once. A caller that repeats it makes a new Call.
type Call struct {
	script    *Script
	args      []any                                                                                        // "evalsha", digest, number of keys, keys…, arguments…
	mixed     bool                                                                                         // the reply also has strings
	joint     func(ctx context.Context, sent time.Time, end func(reply []int64, text []string, err error)) // see NewJoint; nil: one script
	inFullArg int                                                                                          // see WhenInFull; 0: none

	// Rank and By say when the call is sent if a queue has formed. By counts only among calls
	// that keep a lease: the one whose lease ends first goes first.
	Rank Rank
	By   time.Time
	// Node is the name of the server that the call is for, as Client.Node returns it. If it is
	// empty, the client looks it up.
	Node string
	// Done receives the outcome of a call that Start or Send sends. It must not block. It may
	// run on any goroutine, also before Start returns.
	Done func(reply []int64, err error)
	// Confirm asks replicas to confirm the call; the zero Confirm: none. See Unconfirmed.
	Confirm Confirm
	// Void, if not nil, is an argument of the call: the server time (µs) from which on the call
	// does nothing, or 0 for never. Unless it is 0, it is moved to VoidAfter from the moment
	// at which a round trip takes the call, so that the wait in the queue does not count.
	Void      *int64
	VoidAfter time.Duration
	// Text has the strings of the reply, in order.
	Text []string
	// Sent is when a round trip took the call. Read it once the call has its outcome, or once
	// Withdraw has returned false.
	Sent time.Time

	// The command that carries the call. Only the goroutine that makes the round trip uses it.
	integers integersCommand
	anything *anythingCommand

	// state is unsentCall until a round trip takes the call or its caller withdraws it.
	state atomic.Int32
	// confirmed is the number of replicas that confirmed the call, once it has a reply.
	confirmed int32
	copied    atomic.Bool // see Copied

	queue atomic.Pointer[serverQueue] // nil until the call is queued or sent
	// The fields below belong to that queue, and its mutex guards them.
	behind *Call         // goes with this call, right behind it in the same pipeline; nil: none
	place  place         // among the calls of its rank
	cut    bool          // it is the first of a pipeline that was too short for the line
	since  time.Duration // when it was queued, measured from the birth of the queue
	turn   chan []*Call  // see serverQueue.await; nil: Done receives the outcome
	result *outcome      // set before the last send on turn, not under the mutex

	ctx    context.Context // of a call that Start sends, for the client's hooks
	active *sync.WaitGroup // counts a call that Start sends; nil: nobody waits

	room [20]any // the array behind args, large enough for most calls
}

// A Rank says which of the calls that wait for a server are sent first: renewals, so that no
// lease is lost that is held, then what gives something back. The other two take turns, one
// call each, so that a crowd of one kind does not hold up the other.
type Rank int8

const (
	ForCaller  Rank = iota // a caller waits for the answer
	SignOfLife             // of waiters that are in a queue in Redis
	KeepsLease             // a renewal; see Call.By
	GivesBack              // others may wait for what the call gives back
	ranks
)

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

// WhenInFull makes the argument at position i (from 1) be 1 if the call is sent with the text of
// its script: its server may be a new process, which knows no script yet.
func (c *Call) WhenInFull(i int) *Call {
	c.inFullArg = 2 + c.args[2].(int) + i
	return c
}

// Key returns the first key of the call.
func (c *Call) Key() string { key, _ := c.args[3].(string); return key }

// Unconfirmed returns an error if too few replicas confirmed an answered call, and nil if enough did or none had to.
func (c *Call) Unconfirmed() error {
	if c.Confirm == (Confirm{}) || int(c.confirmed) >= c.Confirm.Replicas {
		return nil
	}
	return fmt.Errorf("%d of %d replicas confirmed it within %v", c.confirmed, c.Confirm.Replicas, c.Confirm.Wait)
}

// The states of a call. A round trip and a caller that withdraws the call use one
// compare-and-swap, so exactly one of them wins.
const (
	unsentCall = iota
	takenCall
	withdrawnCall
	endedCall // Done is about to receive its outcome
)

// Withdraw takes back a call that its caller no longer wants. It reports whether it was in time; the call was then not
// sent, and never will be. It still gets its outcome. Call it at most once.
func (c *Call) Withdraw() bool {
	if !c.state.CompareAndSwap(unsentCall, withdrawnCall) {
		return false
	}
	if q := c.queue.Load(); q != nil {
		q.drop(c)
	}
	return true
}

// take marks the call as part of a round trip that begins now. It returns false if the call was withdrawn. Sent and
// Void are set before the state, so a caller that could not withdraw the call sees them.
func (c *Call) take(by *link, now time.Time) bool {
	if c.state.Load() != unsentCall {
		return false
	}
	c.Sent = now
	if c.Void != nil && *c.Void != 0 {
		if us, known := by.server(c.Node).clock.latest(now); known {
			*c.Void = us + c.VoidAfter.Microseconds()
		}
	}
	return c.state.CompareAndSwap(unsentCall, takenCall)
}

// Pending reports whether a call that Start sends must not be repeated yet, and if so, when to look again: while the
// call is in the queue, and until its answer is late. That is twice the average time of a round trip after it was sent,
// but not before patience is over, and at most after longest. now is the present time. Once the answer is late, a Cluster
// is asked for its topology: if the server hangs, a replica may have taken over, long before the client gives up the read.
func (c *Call) Pending(now time.Time, patience, longest time.Duration) (until time.Time, pending bool) {
	switch c.state.Load() {
	case unsentCall:
		return now.Add(patience), true
	case endedCall:
		return now, false
	}
	var late time.Duration
	q := c.queue.Load()
	if q != nil {
		late = q.late()
	}
	until = c.Sent.Add(max(patience, min(longest, late)))
	if pending = until.After(now); !pending && q != nil && q.server.link.cluster != nil {
		q.server.link.Notice(context.DeadlineExceeded) // it does not wait, and asks once a second
	}
	return until, pending
}

// Do sends a call, alone or in a pipeline with calls of other goroutines, and returns its
// reply. If the server does not know the script, Do sends its full text.
//
// If ctx ends before the call is sent, Do returns at once with an error that matches ErrNotSent and ctx's error. Once
// the call is sent, Do waits for the answer and may outlast ctx, because go-redis does not interrupt a read. While the
// server answers, a call waits in its queue as long as its ctx allows. When the server is silent, Do returns within
// Bound plus the client's write and read timeouts, whatever is queued; if the client has no such timeouts, within Bound
// and 8 s.
//
// The first call of a Client costs another round trip, which checks the server's version,
// unless Time or Now has asked the server before.
func (c *Client) Do(ctx context.Context, one *Call) ([]int64, error) {
	if err := c.ready(ctx, one); err != nil {
		return nil, err
	}
	o := c.queueOf(one).do(ctx, one)
	one.Text = o.text
	return o.reply, o.err
}

// DoBoth sends first and second in one pipeline, in this order, and waits for both outcomes.
// They must be for the same server. The pair waits with the rank of second.
func (c *Client) DoBoth(ctx context.Context, first, second *Call) (replies [2][]int64, errs [2]error) {
	if err := c.ready(ctx, first); err != nil {
		return replies, [2]error{err, err}
	}
	second.Node, first.Rank, first.behind = first.Node, second.Rank, second
	var both sync.WaitGroup
	for i, one := range []*Call{first, second} {
		one.Done = func(reply []int64, err error) { replies[i], errs[i] = reply, err }
		one.active = &both
		both.Add(1)
	}
	c.queueOf(first).add(true, first)
	both.Wait()
	return replies, errs
}

// Start sends calls and does not wait. Each call gets its outcome through Done, also if it is
// not sent. ctx is the caller's, with its values for the client's hooks; its end takes nothing
// back: see Call.Withdraw. active counts the calls until their Done has returned; it may be nil.
func (c *Client) Start(ctx context.Context, active *sync.WaitGroup, calls ...*Call) {
	c.start(ctx, active, false, calls)
}

// Send sends calls in one pipeline per server, and waits for all outcomes. Each call gets its
// own through Done. If calls wait for that server already, these wait with them.
func (c *Client) Send(ctx context.Context, calls []*Call) {
	var all sync.WaitGroup
	c.start(ctx, &all, true, calls)
	all.Wait()
}

func (c *Client) start(ctx context.Context, active *sync.WaitGroup, together bool, calls []*Call) {
	for _, one := range calls {
		one.ctx, one.active = ctx, active
	}
	if active != nil {
		active.Add(len(calls))
	}
	if c.checked.Load() && (c.cluster == nil || c.mapped.Load()) {
		c.enqueue(ctx, together, calls)
		return
	}
	c.spawn(func() { c.enqueue(ctx, together, calls) }) // the server's version or the topology is asked for
}

// enqueue hands calls to the queues of their servers. It waits only if the version or the topology is unknown.
func (c *Client) enqueue(ctx context.Context, together bool, calls []*Call) {
	byQueue := map[*serverQueue][]*Call{}
	for i, one := range calls {
		if err := c.ready(ctx, one); err != nil { // it concerns all calls
			for _, one := range calls[i:] {
				one.done(outcome{err: err})
			}
			break
		}
		q := c.queueOf(one)
		if len(calls) == 1 {
			q.add(together, one)
			return
		}
		byQueue[q] = append(byQueue[q], one)
	}
	for q, calls := range byQueue {
		q.add(together, calls...)
	}
}

// done hands out the outcome of a call that Start sends.
func (c *Call) done(o outcome) {
	c.Text = o.text
	c.state.Store(endedCall)
	if c.active != nil {
		defer c.active.Done()
	}
	if c.Done != nil {
		c.Done(o.reply, o.err)
	}
}

// ready prepares one for sending: it makes sure that the server's version is supported and
// that the call names its server.
func (c *Client) ready(ctx context.Context, one *Call) error {
	if err := c.ensureSupported(ctx, one.Key()); err != nil {
		return err
	}
	return c.route(ctx, one)
}

// sendOrTeach sends one call by itself. If the server does not know the script, sendOrTeach sends
// the call again in full. A hook, or the caller's ctx, may panic.
func (c *link) sendOrTeach(ctx context.Context, began time.Time, one *Call) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = one.outcome(panicked(p))
		}
	}()
	ctx = c.bounded(ctx, began)
	for again := false; ; again = true {
		cmd := one.command(ctx, c)
		err := tame(c.rdb.Process(ctx, cmd), cmd)
		o = one.outcome(err)
		c.countSendings(one, alone, o.err == nil)
		if o.err == nil && err != nil {
			o = outcome{err: err} // a wrapped client may return the error without setting it on the command
		}
		if again || !unknownScript(o.err) {
			return o
		}
		one.inFull()
	}
}

// inFull makes the call carry the script's text, for a server that does not know the script (a
// new server, a new primary, or after SCRIPT FLUSH). The server then knows it.
func (c *Call) inFull() *Call {
	args := append([]any(nil), c.args...)
	args[0], args[1] = "eval", c.script.source
	if c.inFullArg > 0 {
		args[c.inFullArg] = 1
	}
	c.args = args
	return c
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
		none, asked = all == nil, c.anything.reads.Load() > 0
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
		none, asked = o.reply == nil, c.integers.reads.Load() > 0
	}
	switch {
	case o.err == nil && none && !asked:
		o.err = NotSent(trip)
	case o.err == nil && none:
		o.err = noReply(trip)
	case o.err != nil && !asked:
		o.err = NotSent(o.err)
	}
	if o.err != nil {
		o.reply, o.text = nil, nil
	}
	return o
}
