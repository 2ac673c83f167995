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

// script returns the name of the script that cmd runs, or "".
func script(cmd redis.Cmder) string {
	if args := cmd.Args(); cmd.Name() == "evalsha" || cmd.Name() == "eval" {
		return call.ScriptName(args[1].(string))
	}
	return ""
}

// wantFreeAfter fails unless key is free for another handle at the time end.
func wantFreeAfter(t *testing.T, rdb redis.UniversalClient, key string, end time.Time) {
	t.Helper()
	time.Sleep(time.Until(end))
	synctest.Wait()
	other := newLocks(t, rdb, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	l, err := take(ctx, other, key)
	redistest.CheckNow(t, err == nil, "the lock is not free: %v", err)
	redistest.NoError(t, l.Release("unlock"))
}

// lateRequests is a network on which requests reach the server late, or never. Pipelines are
// those of the background.
type lateRequests struct {
	recorder
	began     time.Time
	script    string        // its requests
	runAt     time.Duration // reach the server so long after began
	dropReply bool          // and their replies are lost
	leavesAt  time.Duration // until so long after began, leaves are lost
}

func (h *lateRequests) pass(cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		switch {
		case script(cmd) == h.script:
			time.Sleep(time.Until(h.began.Add(h.runAt)))
		case script(cmd) == "leave" && time.Since(h.began) < h.leavesAt:
			for _, c := range cmds {
				c.SetErr(errCut)
			}
			return errCut
		}
	}
	return nil
}

func (h *lateRequests) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := h.pass(cmd)
		if err == nil {
			err = next(context.WithoutCancel(ctx), cmd) // on its way already when ctx ended
		}
		if h.dropReply && script(cmd) == h.script {
			err = errCut
			cmd.SetErr(err)
		}
		return err
	}
}

func (h *lateRequests) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.pass(cmds...); err != nil {
			return err
		}
		return next(context.WithoutCancel(ctx), cmds)
	}
}

// An enter that its caller gave up runs when it is nearly void, and all leaves until then are
// lost. The leave is repeated for a TTL after that: what the enter was granted does not stay
// taken until its term is over.
func TestLeaveIsRepeatedForATTLAfterALateEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		rdb := client()
		warm(t, rdb)
		m := newLocks(t, rdb, 5*time.Second)
		if err := mustTake(t, m, "k").Release("unlock"); err != nil { // the server's clock is known
			t.Fatal(err)
		}
		began := time.Now()
		rdb.AddHook(&lateRequests{began: began, script: "enter", runAt: 4800 * time.Millisecond, leavesAt: 5500 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := take(ctx, m, "k")
		redistest.CheckNow(t, err != nil, "it got the lock")
		wantFreeAfter(t, client(), "k", began.Add(7500*time.Millisecond))
	})
}

// A renewal or an Extend that runs after the release prolongs the term of a lease whose leaves
// are lost: the leave is repeated until that term is over, whether its reply comes or not.
func TestLeaveIsRepeatedForTheTermOfALateExtend(t *testing.T) {
	for name, dropReply := range map[string]bool{"answered": false, "not answered": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := redistest.Bubble(t)
				rdb := client()
				warm(t, rdb)
				m := newLocks(t, rdb, 6*time.Second)
				l := mustTake(t, m, "k")
				began := time.Now()
				rdb.AddHook(&lateRequests{
					began: began, script: "renew", runAt: 5500 * time.Millisecond, dropReply: dropReply, leavesAt: 12 * time.Second,
				})
				extended := make(chan error)
				go func() { extended <- l.Extend(t.Context(), 30*time.Second) }()
				synctest.Wait()
				redistest.Check(t, l.Release("unlock") != nil, "Release says nil; no leave was answered")
				<-extended
				wantFreeAfter(t, client(), "k", began.Add(15*time.Second))
			})
		})
	}
}
