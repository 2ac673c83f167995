package call

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// Confirm says that replicas are to confirm a call. Such calls have lanes and pipelines
// of their own, so that nobody else waits for the replicas.
type Confirm struct {
	Replicas int           // how many replicas are to confirm
	Wait     time.Duration // how long they may take
	TTL      time.Duration // how long the marker lasts
}

// LongestWait is the longest time that WAIT may take on this client: an answer that came
// after the client's ReadTimeout would be a lost one. A quarter is left for the network.
func (c *Client) LongestWait() time.Duration { return c.longestReply * 3 / 4 }

// Unconfirmed says that too few replicas confirmed a call that was answered; nil where
// enough did, or none had to.
func (c *Call) Unconfirmed() error {
	if c.Confirm == nil || int(c.confirmed) >= c.Confirm.Replicas {
		return nil
	}
	return fmt.Errorf("%d of %d replicas confirmed it within %v", c.confirmed, c.Confirm.Replicas, c.Confirm.Wait)
}

// Allowance is how much longer than another call this one may take.
func (c *Call) Allowance() time.Duration {
	if c.Confirm == nil {
		return 0
	}
	return c.Confirm.Wait
}

// confirmedPipeline sends some of calls in one pipeline, and has the replicas confirm
// them there. Behind the scripts go the marker and WAIT:
//
//   - WAIT waits for what its own connection wrote. A script that is sent again may write
//     nothing, and WAIT would then confirm at once what no replica has. So a key is
//     written that has no other use. The replicas apply writes in their order: the one that
//     has the marker has the lease, whichever connection wrote it.
//   - PEXPIRE writes where the marker exists, also when memory has run out; SET writes
//     where it does not.
//   - On a Cluster the pipeline goes to the node of the key, past the Cluster client: that
//     would send WAIT, which has no key, to any node. A node that is not the key's any
//     more answers MOVED or ASK, and the caller tries again.
//
// A call whose confirmation has no answer counts as one without an answer.
func (c *Client) confirmedPipeline(ctx context.Context, calls []*Call, which []int, outcomes []outcome) {
	first := calls[which[0]]
	var rdb redis.UniversalClient = c.rdb
	if c.cluster != nil {
		node, err := c.cluster.MasterForKey(ctx, first.Key())
		if err != nil {
			for _, i := range which {
				outcomes[i] = outcome{err: notSent(err)}
			}
			return
		}
		rdb = node
	}
	marker, ms := keys.Beside(first.Key(), "marker"), Milliseconds(first.Confirm.TTL)
	kept := redis.NewIntCmd(ctx, "pexpire", marker, ms)
	set := redis.NewStatusCmd(ctx, "set", marker, "", "px", ms)
	wait := redis.NewIntCmd(ctx, "wait", first.Confirm.Replicas, Milliseconds(first.Confirm.Wait))
	cmds := make([]redis.Cmder, 0, len(which)+3)
	for _, i := range which {
		cmds = append(cmds, calls[i].command(ctx))
	}
	trip := c.exec(ctx, rdb, append(cmds, kept, set, wait))
	var failed error
	switch {
	case wait.Err() != nil:
		failed = fmt.Errorf("WAIT for %d replicas: %w", first.Confirm.Replicas, wait.Err())
	case kept.Val() == 1:
	case set.Err() != nil:
		failed = fmt.Errorf("the write that replicas are to confirm: %w", set.Err())
	case set.Val() == "":
		failed = noReply(trip)
	}
	for _, i := range which {
		o := calls[i].outcome(trip)
		if o.err == nil && failed != nil {
			o = outcome{err: failed}
		}
		calls[i].confirmed = int32(wait.Val())
		outcomes[i] = o
	}
}
