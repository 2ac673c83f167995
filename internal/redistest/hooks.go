package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Hook lets everything pass. A hook that embeds it has only the methods that it is about.
type Hook struct{}

func (Hook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Around is a hook of one function, which is called around what is sent: one command, or several in a pipeline.
type Around func(ctx context.Context, cmds []redis.Cmder, send func() error) error

func (Around) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a Around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return a(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (a Around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return a(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

// Hooks is a hook of functions. One that is nil lets everything pass.
type Hooks struct {
	Hook
	Process  func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
	Pipeline func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

func (h *Hooks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.Process == nil {
			return next(ctx, cmd)
		}
		return h.Process(ctx, cmd, next)
	}
}

func (h *Hooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.Pipeline == nil {
			return next(ctx, cmds)
		}
		return h.Pipeline(ctx, cmds, next)
	}
}

// FirstReplies returns a hook that has a server answer each script once, and after that gives the same reply
// from memory: what is measured then is this process's own work. One call at a time is made.
func FirstReplies() redis.Hook {
	known := map[any][]int64{} // by the script's hash
	return &Hooks{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		script, ok := cmd.(interface {
			Val() []int64
			SetVal(reply []int64)
		})
		if !ok || cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		hash := cmd.Args()[1]
		if reply, ok := known[hash]; ok {
			script.SetVal(reply)
			return nil
		}
		err := next(ctx, cmd)
		if err == nil {
			known[hash] = script.Val()
		}
		return err
	}}
}
