package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Close waits for a Release that is under way: a program that closes the client after it
// takes nothing from that.
func TestCloseWaitsForARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		rdb := client()
		m := newLocks(t, rdb, time.Minute)
		l := mustTake(t, m, "k")
		hold := &holdReplies{enters: make(chan struct{}), asks: make(chan struct{})}
		close(hold.asks)
		rdb.AddHook(hold)
		released, closed := make(chan error, 1), make(chan error, 1)
		go func() { released <- l.Release("unlock") }()
		synctest.Wait()
		go func() { closed <- m.Close(context.Background()) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned before the Release had its answer")
		default:
		}
		close(hold.enters)
		redistest.NoError(t, <-released)
		synctest.Wait()
		select {
		case err := <-closed:
			redistest.NoError(t, err)
		default:
			t.Error("Close did not return after the Release")
		}
	})
}

// holdTime holds the questions for the server's time back until it is closed.
type holdTime struct {
	redis.Hook
	until chan struct{}
}

func (h *holdTime) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *holdTime) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *holdTime) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 {
			if text, ok := args[1].(string); ok && call.ScriptName(text) == "time" {
				<-h.until
			}
		}
		return next(ctx, cmd)
	}
}

// What is known of the server's clock gets old, and is asked for anew beside the call
// that needs it. Close waits for that, too.
func TestCloseWaitsForTheQuestionForTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		rdb := client()
		m := newLocks(t, rdb, time.Minute)
		redistest.WantErr(t, mustTake(t, m, "k").Release("unlock"))
		time.Sleep(time.Minute)
		hold := &holdTime{until: make(chan struct{})}
		rdb.AddHook(hold)
		redistest.WantErr(t, mustTake(t, m, "k").Release("unlock"))
		closed := make(chan error, 1)
		go func() { closed <- m.Close(context.Background()) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned while the question for the time was under way")
		default:
		}
		close(hold.until)
		redistest.NoError(t, <-closed)
	})
}
