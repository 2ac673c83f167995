package call

import (
	"context"
	"sync"
)

// Send sends calls in one pipeline per server, plus one per server for the calls that replicas
// confirm. All pipelines are sent at the same time. Each call gets its outcome through Done,
// which several goroutines may call at once. The calls of a server get their outcomes as soon
// as that server has answered, even if another server hangs. Send returns when all calls have
// theirs, within Bound and the client's timeouts. ctx bounds only the wait for the version and
// the topology, if the Client is new.
func (c *Client) Send(ctx context.Context, calls []*Call) {
	c.sendParts(ctx, calls, func(calls []*Call) int { return len(calls) })
}

// SendInParts is Send with pipelines no longer than those of a lane, several at a time. It is
// for calls whose predecessors were sent in one pipeline and not answered.
func (c *Client) SendInParts(ctx context.Context, calls []*Call) { c.sendParts(ctx, calls, fitting) }

// sendParts sends calls in pipelines; fit returns the number of calls for the next one.
func (c *Client) sendParts(ctx context.Context, calls []*Call, fit func([]*Call) int) {
	byWay := map[Way][]*Call{}
	var err error // of the version or the topology, so it concerns all calls
	for _, one := range calls {
		if err == nil {
			err = c.ready(ctx, one)
		}
		if err != nil {
			one.done(outcome{err: err})
			continue
		}
		byWay[one.Way()] = append(byWay[one.Way()], one)
	}
	var all sync.WaitGroup
	for _, calls := range byWay {
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
					defer func() { <-room }() // runs even if a hook ends this goroutine
					c.sendPart(some)
				})
			}
			parts.Wait()
		}
		if len(byWay) == 1 {
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
			o := outcome{err: errNoReply} // stays if a hook ends this goroutine
			if outcomes != nil {
				o = outcomes[i]
			}
			one.done(o)
		}
	}()
	outcomes = c.sendTogether(calls, Bound)
}

// done hands out the outcome of a call that Send sent.
func (c *Call) done(o outcome) {
	c.Text = o.text
	if c.Done != nil {
		c.Done(o.reply, o.err)
	}
}
