package call

import (
	"context"
	"sync"
)

// Send sends calls in one pipeline per server, and one more for those that replicas
// confirm, all at the same time, and gives
// each call its outcome through Done, which may be called by several goroutines.
// The calls of one server get theirs when that server has answered: those of
// another that hangs delay none. Send returns when all have theirs, within Bound
// and the client's timeouts. ctx bounds only the wait for the version and the
// topology, where the Client is new.
func (c *Client) Send(ctx context.Context, calls []*Call) {
	c.sendParts(ctx, calls, func(calls []*Call) int { return len(calls) })
}

// SendInParts is Send in pipelines no longer than those of a lane, several at a
// time: for calls that were sent in one pipeline before and not answered.
func (c *Client) SendInParts(ctx context.Context, calls []*Call) { c.sendParts(ctx, calls, fitting) }

// sendParts sends calls in pipelines of as many as fit says.
func (c *Client) sendParts(ctx context.Context, calls []*Call, fit func([]*Call) int) {
	type way struct {
		node     string
		confirms bool
	}
	byNode := map[way][]*Call{}
	var err error // of the version or the topology, and so the same for all
	for _, one := range calls {
		if err == nil {
			err = c.ready(ctx, one)
		}
		if err != nil {
			one.done(outcome{err: err})
			continue
		}
		to := way{one.Node, one.Confirm != nil}
		byNode[to] = append(byNode[to], one)
	}
	var all sync.WaitGroup
	for _, calls := range byNode {
		room := make(chan struct{}, maxInFlight)
		send := func() {
			var parts sync.WaitGroup
			for len(calls) > 0 {
				some := calls[:fit(calls)]
				if calls = calls[len(some):]; len(calls) == 0 {
					c.sendPart(some)
					break
				}
				room <- struct{}{}
				parts.Go(func() {
					defer func() { <-room }() // also where a hook ends this goroutine
					c.sendPart(some)
				})
			}
			parts.Wait()
		}
		if len(byNode) == 1 {
			send()
			return
		}
		all.Go(send)
	}
	all.Wait()
}

func (c *Client) sendPart(calls []*Call) {
	var outcomes []outcome
	defer func() {
		for i, one := range calls {
			o := outcome{err: errNoReply} // where a hook ends this goroutine
			if outcomes != nil {
				o = outcomes[i]
			}
			one.done(o)
		}
	}()
	outcomes = c.together(calls, Bound)
}

// done hands out the outcome of a call that Send sent.
func (c *Call) done(o outcome) {
	c.Text = o.text
	if c.Done != nil {
		c.Done(o.reply, o.err)
	}
}
