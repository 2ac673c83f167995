package call

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// sendTogether makes a round trip with calls in one pipeline, and returns the outcome of each. It ends within limit and
// the client's timeouts. Either all calls have the same Confirm, or none has one.
func (c *link) sendTogether(calls []*Call, limit time.Duration) (outcomes []outcome) {
	allowance := calls[0].Confirm.Wait
	ctx, cancel := context.WithTimeout(context.Background(), limit+allowance)
	defer cancel()
	answered, began := true, time.Now()
	if c.boundsReads {
		outcomes = c.pipelineOrTeach(ctx, calls)
	} else {
		outcomes, answered = within(hardBound+allowance, func() []outcome { return c.pipelineOrTeach(ctx, calls) })
	}
	if !answered {
		// The pipeline is still under way, so its commands must not be read.
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
	c.failed(calls[0].Key(), noticed)
	return outcomes
}

// pipelineOrTeach sends calls in one pipeline. If the server did not know some of their scripts, they are sent again:
// the first of them in full and by itself, because its text is long, and then the rest by name. This repeats, because
// the rest may have other scripts or other servers, or a server that has forgotten its scripts in the meantime.
func (c *link) pipelineOrTeach(ctx context.Context, calls []*Call) []outcome {
	outcomes := make([]outcome, len(calls))
	all := make([]int, 0, len(calls)) // indices of calls
	now := time.Now()
	for i, one := range calls {
		if !one.take(c, now) {
			outcomes[i].err = NotSent(errWithdrawn)
			continue
		}
		all = append(all, i)
	}
	send := func(which []int) (unknown []int) {
		if len(which) > 0 {
			c.pipelineOnce(ctx, calls, which, outcomes)
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

// pipelineOnce sends the calls at the indices which in one pipeline and sets their outcomes.
func (c *link) pipelineOnce(ctx context.Context, calls []*Call, which []int, outcomes []outcome) {
	if calls[which[0]].Confirm != (Confirm{}) {
		c.confirmedPipeline(ctx, calls, which, outcomes)
		return
	}
	cmds := make([]redis.Cmder, len(which))
	for n, i := range which {
		cmds[n] = calls[i].command(ctx, c)
	}
	err := c.exec(ctx, c.rdb, cmds)
	for n, i := range which {
		outcomes[i] = calls[i].outcome(err)
		c.countSendings(calls[i], firstOfPipeline+position(min(n, 1)), outcomes[i].err == nil)
	}
}

// exec runs a pipeline and returns its error as a whole. Hooks are the user's code. If one panics, no call may stay
// without an outcome; and the goroutine may belong to this library, in which case the panic would end the process. So
// exec returns the panic as an error, which becomes the error of each call without an outcome.
func (c *link) exec(ctx context.Context, rdb redis.Cmdable, cmds []redis.Cmder) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		err = tame(err, cmds...)
	}()
	pipe := rdb.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err = pipe.Exec(ctx)
	return err
}
