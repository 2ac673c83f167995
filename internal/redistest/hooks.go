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

// FirstReplies returns a hook that has a server answer each script once, and after that gives the same reply
// from memory: what is measured then is this process's own work. One call at a time is made.
func FirstReplies() redis.Hook { return firstReplies{known: map[any][]int64{}} }

type firstReplies struct {
	Hook
	known map[any][]int64 // by the script's hash
}

func (f firstReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script, ok := cmd.(interface {
			Val() []int64
			SetVal(reply []int64)
		})
		if !ok || cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		hash := cmd.Args()[1]
		if reply, ok := f.known[hash]; ok {
			script.SetVal(reply)
			return nil
		}
		err := next(ctx, cmd)
		if err == nil {
			f.known[hash] = script.Val()
		}
		return err
	}
}
