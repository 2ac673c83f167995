package call

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/nested"
)

// A server that restarts, or a balancer that ends what is idle, breaks all connections of a pool. go-redis looks at a
// connection before it uses it, but it cannot look through TLS or through a type of the user's dialer, and it sends a
// script once. So each call, and each repetition, would come to one broken connection and fail. The first call that
// does so has the pool swept: one question for each idle connection, at the same time. Those that are broken fail, and
// the client drops them, before the call is repeated.

// sweepPatience is how long a look-up waits for the sweep before it is repeated.
const sweepPatience = 100 * time.Millisecond

// broken reports whether err says that a connection was broken before it had an answer, and not by a timeout.
func broken(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op != "dial" && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe)
}

// failed notes the error of a round trip to the server that has key, or nil.
func (c *link) failed(key string, err error) {
	if err == nil {
		return
	}
	c.Notice(err)
	if broken(err) {
		c.sweep(key)
	}
}

// sweep has the client drop the idle connections that are broken, unless it does so already.
func (c *link) sweep(key string) *answer[struct{}] {
	return c.serverOf(key).sweeps.ask(inBackground, func(ctx context.Context) (none struct{}, _ error) {
		ctx, cancel := context.WithTimeout(ctx, Bound)
		defer cancel()
		stats := c.rdb.PoolStats
		if c.cluster != nil {
			node := c.primary(key)
			if node == nil {
				return none, nil
			}
			stats = node.PoolStats
		}
		var all sync.WaitGroup
		defer all.Wait()
		idle := stats()
		for range idle.IdleConns {
			all.Go(func() { c.sendOrTeach(ctx, time.Now(), askTime(key)) })
		}
		if idle.PipelineStats == nil { // pipelines have no pool of their own
			return none, nil
		}
		for range idle.PipelineStats.IdleConns {
			all.Go(func() { c.pipelineOrTeach(ctx, []*Call{askTime(key)}) })
		}
		return none, nil
	})
}

// Settle waits until nothing is left running that calls have begun in the background, which takes no
// longer than a call. Nothing of a handle outlives its Close.
func (c *link) Settle() {
	c.only.sweeps.settled()
	c.servers.Range(func(_, s any) bool {
		s.(*server).sweeps.settled()
		return true
	})
	c.topology.settled()
}

func askTime(key string) *Call { return New(timeScript, 1, key).WithText() }

// mayLookAgain reports whether a look-up that failed with err is to be repeated, and waits until
// the pool is swept. A look-up changes nothing, so it may run twice.
func (c *link) mayLookAgain(ctx context.Context, key string, err error) bool {
	if err == nil || !broken(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(nested.Calm{Context: ctx}, sweepPatience)
	defer cancel()
	_, _ = c.sweep(key).wait(ctx)
	return true
}
