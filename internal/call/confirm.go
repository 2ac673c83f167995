package call

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// Confirm says how replicas confirm a call. See link.queueOf.
type Confirm struct {
	Replicas int           // how many replicas must confirm
	Wait     time.Duration // how long they may take
	TTL      time.Duration // how long the marker lasts
}

// LongestWait returns the longest time that WAIT may take on this client. An answer after the
// client's ReadTimeout would be lost. A quarter of that timeout is left for the network.
func (c *link) LongestWait() time.Duration { return c.longestReply * 3 / 4 }

// confirmedPipeline sends some of calls in one pipeline in which the replicas confirm them.
// After the scripts come the marker and WAIT:
//
//   - WAIT waits only for writes of its own connection. A script that is sent again may write
//     nothing, and WAIT would then at once confirm a lease that no replica has. So the
//     pipeline also writes a marker, a key without other use. Replicas apply writes in order:
//     a replica that has the marker has the lease, whichever connection wrote the lease.
//   - PEXPIRE writes if the marker exists, even when memory has run out. SET creates the
//     marker if it does not exist.
//   - On a Cluster the pipeline bypasses the Cluster client and goes to the node of the key.
//     The Cluster client would send WAIT, which has no key, to any node. A node that no longer
//     has the key answers MOVED, and the caller tries again; or ASK, since the slot is moving, and
//     the pipeline goes on to the other node, to which go-redis has no way.
//
// A call whose confirmation has no answer counts as a call without an answer.
func (c *link) confirmedPipeline(ctx context.Context, calls []*Call, which []int, outcomes []outcome) {
	if c.cluster == nil {
		c.confirmedAt(ctx, c.rdb, false, calls, which, outcomes)
		return
	}
	node, err := c.cluster.primary(ctx, calls[which[0]].Key())
	if err != nil {
		for _, i := range which {
			outcomes[i] = outcome{err: NotSent(err)}
		}
		return
	}
	c.confirmedAt(ctx, node, false, calls, which, outcomes)
	asked := map[string][]int{} // by the node that has the key
	for _, i := range which {
		if words := strings.Fields(serverError(outcomes[i].err)); len(words) == 3 && words[0] == "ASK" {
			asked[words[2]] = append(asked[words[2]], i)
		}
	}
	for addr, which := range asked {
		other, closes := node.beside(addr)
		defer func() { _ = closes() }() // also if the user's dialer ends this goroutine
		c.confirmedAt(ctx, other, true, calls, which, outcomes)
	}
}

// confirmedAt is confirmedPipeline at one node. asking says that another node has sent the calls there.
func (c *link) confirmedAt(ctx context.Context, rdb sender, asking bool, calls []*Call, which []int, outcomes []outcome) {
	first := calls[which[0]]
	marker, ms := keys.Beside(first.Key(), "marker"), Milliseconds(first.Confirm.TTL)
	kept := redis.NewIntCmd(ctx, "pexpire", marker, ms)
	set := redis.NewStatusCmd(ctx, "set", marker, "", "px", ms)
	wait := redis.NewIntCmd(ctx, "wait", first.Confirm.Replicas, Milliseconds(first.Confirm.Wait))
	cmds := make([]redis.Cmder, 0, 2*len(which)+5)
	add := func(cmd redis.Cmder) {
		if asking { // it holds for one command
			cmds = append(cmds, redis.NewCmd(ctx, "asking"))
		}
		cmds = append(cmds, cmd)
	}
	for _, i := range which {
		add(calls[i].command(ctx, c))
	}
	add(kept)
	add(set)
	trip := c.exec(ctx, rdb, append(cmds, wait))
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
	for n, i := range which {
		o := calls[i].outcome(trip)
		c.countSendings(calls[i], firstConfirmed+position(min(n, 1)), o.err == nil)
		if o.err == nil && failed != nil {
			o = outcome{err: noReply(failed)} // its script has run, whatever the server says of WAIT
		}
		calls[i].confirmed = int32(wait.Val())
		outcomes[i] = o
	}
}
