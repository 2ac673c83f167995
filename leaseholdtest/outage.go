package leaseholdtest

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Outage makes every call of rdb fail as if the connection was refused, until end is called. Other clients of the same
// server are not affected. Messages still arrive, but this makes no difference, because nothing depends on them.
func Outage(rdb redis.UniversalClient) (end func()) {
	o := new(outage)
	rdb.AddHook(o) // a hook cannot be removed; it does nothing after end
	return func() { o.over.Store(true) }
}

type outage struct{ over atomic.Bool }

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (o *outage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if o.over.Load() {
			return next(ctx, cmd)
		}
		cmd.SetErr(errRefused)
		return errRefused
	}
}

func (o *outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if o.over.Load() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds { // go-redis takes the error from each command
			cmd.SetErr(errRefused)
		}
		return errRefused
	}
}
