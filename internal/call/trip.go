package call

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

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

// together makes a round trip with some calls in one pipeline, and returns the
// outcome of each. It ends within limit and the client's timeouts. Either all calls have
// the same Confirm, or none has one.
func (c *Client) together(calls []*Call, limit time.Duration) (outcomes []outcome) {
	allowance := calls[0].Allowance()
	ctx, cancel := context.WithTimeout(context.Background(), limit+allowance)
	defer cancel()
	answered, began := true, time.Now()
	if c.bounds {
		outcomes = c.pipelines(ctx, calls)
	} else {
		outcomes, answered = within(hardBound+allowance, func() []outcome { return c.pipelines(ctx, calls) })
	}
	if !answered {
		// The pipeline is still under way: its commands must not be read.
		outcomes = make([]outcome, len(calls))
		for i := range outcomes {
			outcomes[i].err = errNoAnswer
		}
	}
	var noticed error
	for i := range outcomes {
		err := &outcomes[i].err
		if errors.Is(*err, context.DeadlineExceeded) {
			*err = TooLate(*err, began)
		}
		if *err != nil && (noticed == nil || network(*err)) {
			noticed = *err
		}
	}
	c.Notice(noticed)
	return outcomes
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

// pipelines sends calls in one pipeline. Those whose script a server did not know
// are sent again: the first of them in full and by itself, since the text is long,
// the rest by name; and so on, for there may be other scripts among them, or
// servers, or one that forgot its scripts meanwhile.
func (c *Client) pipelines(ctx context.Context, calls []*Call) []outcome {
	outcomes := make([]outcome, len(calls))
	all := make([]int, 0, len(calls)) // indices of calls
	for i, one := range calls {
		if !one.take() {
			outcomes[i].err = notSent(errWithdrawn)
			continue
		}
		all = append(all, i)
	}
	send := func(which []int) (unknown []int) {
		if len(which) > 0 {
			c.pipeline(ctx, calls, which, outcomes)
		}
		for _, i := range which {
			if unknownScript(outcomes[i].err) {
				unknown = append(unknown, i)
			}
		}
		return unknown
	}
	for unknown := send(all); len(unknown) > 0; {
		calls[unknown[0]].inFull()
		send(unknown[:1])
		if unknown = unknown[1:]; len(unknown) > 0 {
			unknown = send(unknown)
		}
	}
	return outcomes
}

// pipeline sends some of calls in one pipeline and sets the outcome of each.
func (c *Client) pipeline(ctx context.Context, calls []*Call, which []int, outcomes []outcome) {
	if calls[which[0]].Confirm != nil {
		c.confirmedPipeline(ctx, calls, which, outcomes)
		return
	}
	cmds := make([]redis.Cmder, len(which))
	for n, i := range which {
		cmds[n] = calls[i].command(ctx)
	}
	err := c.exec(ctx, c.rdb, cmds)
	for _, i := range which {
		outcomes[i] = calls[i].outcome(err)
	}
}

// exec is the error of a pipeline as a whole. Hooks are the user's code: one that
// panics must leave no call without an outcome, and the goroutine may be the
// library's own, where a panic would end the process. So a panic is the error of
// each call that it leaves without an outcome.
func (c *Client) exec(ctx context.Context, rdb redis.UniversalClient, cmds []redis.Cmder) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	pipe := rdb.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err = pipe.Exec(ctx)
	return err
}
