package redistest

import (
	"context"
	"log"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/embedded"
)

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

// Apart is a hook of two functions: around commands that are sent alone, and around pipelines, be they of one command.
type Apart struct {
	Around
	Together Around
}

func (a Apart) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return a.Together.ProcessPipelineHook(next)
}

// FirstReplies returns a hook that has a server answer each script once, and after that gives the same reply
// from memory: what is measured then is this process's own work. One call at a time is made.
func FirstReplies() redis.Hook {
	known := map[any][]int64{} // by the script's hash
	return Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		script, ok := cmds[0].(interface {
			Val() []int64
			SetVal(reply []int64)
		})
		if !ok || len(cmds) > 1 || cmds[0].Name() != "evalsha" {
			return send()
		}
		hash := cmds[0].Args()[1]
		if reply, ok := known[hash]; ok {
			script.SetVal(reply)
			return nil
		}
		err := send()
		if err == nil {
			known[hash] = script.Val()
		}
		return err
	})
}

// Mini starts an embedded server on a TCP port, where keys expire with the clock as they do on real servers.
func Mini(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	m := embedded.New(tb)
	Require(tb, m.StartAddr("127.0.0.1:0"), nil, "start miniredis: %v")
	return m
}

// MiniClient makes a client of an embedded server of its own, closed at the end of the test.
func MiniClient(tb testing.TB, mod ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return newClient(tb, Mini(tb).Addr(), mod)
}

// Bubble makes an embedded server and clients for use inside a testing/synctest
// bubble, whose clock the server follows. It must be called inside the bubble.
//
// A mod that sets Dialer can put a faulty network in between; it gets a connection from the server's Dial.
func Bubble(tb testing.TB) (*miniredis.Miniredis, func(mod ...func(*redis.Options)) *redis.Client) {
	tb.Helper()
	m := embedded.New(tb)
	client := func(mod ...func(*redis.Options)) *redis.Client {
		inMemory := func(opt *redis.Options) { *opt = *embedded.Options(m) }
		return newClient(tb, "", append([]func(*redis.Options){inMemory}, mod...))
	}
	return m, client
}

// Connect returns a client of an embedded server, so that the Example functions run anywhere. A
// program uses a client of its own: redis.NewClient, NewFailoverClient or NewClusterClient.
func Connect() (rdb *redis.Client, stop func()) {
	srv := miniredis.NewMiniRedis()
	srv.ClockTTL(true)
	if err := srv.Start(); err != nil {
		log.Fatal(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: srv.Addr()})
	return rdb, func() { _ = rdb.Close(); srv.Close() }
}
