package call

import (
	"context"
	"sync"
	"time"
)

// NewJoint makes a call that consists of calls to several servers. begin starts them and must
// not block; sent is the time at which the joint call begins. end hands out the outcome of all
// together, and is called exactly once, on any goroutine, perhaps before begin returns.
//
// No queue carries a joint call: the calls that it consists of have queues of their own. So it
// cannot be withdrawn once it has begun.
func NewJoint(begin func(ctx context.Context, sent time.Time, end func(reply []int64, text []string, err error))) *Call {
	return &Call{joint: begin}
}

// Begin begins a joint call and does not wait for it. Done receives its outcome. active counts
// the call until Done has returned; it may be nil.
func (c *Call) Begin(ctx context.Context, active *sync.WaitGroup) {
	if c.active = active; active != nil {
		active.Add(1)
	}
	c.Sent = time.Now()
	c.state.Store(takenCall)
	c.joint(ctx, c.Sent, func(reply []int64, text []string, err error) {
		c.done(outcome{reply: reply, text: text, err: err})
	})
}

// DoJointly is Begin that waits for the outcome.
func (c *Call) DoJointly(ctx context.Context) ([]int64, error) {
	var reply []int64
	ended := make(chan error, 1)
	c.Done = func(ints []int64, err error) {
		reply = ints
		ended <- err
	}
	c.Begin(ctx, nil)
	err := <-ended
	return reply, err
}
