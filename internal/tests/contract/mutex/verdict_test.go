package mutex

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// A waiter is told to enter again, and is granted before it wakes. Lock returns the
// grant, although no further enter reaches the server.
//
// The waiter sleeps in the method Done of its ctx, which Lock calls before it waits for
// a verdict. Meanwhile its place is lost, an ask says so, a late copy of its enter takes
// a place again, and the reply to the holder's leave has the grant.
func TestGrantBeforeItsWaiterWoke(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		w, rdb := &harness.Wire{}, f.Connect(&harness.Wire{})
		asleep := &sleepyCtx{Context: f.Context(), wake: make(chan struct{})}
		late := &lateCopy{answered: asleep.sleep}
		rdb.AddHook(late)
		m := f.openOn(rdb, w, ttl(time.Minute))
		held := f.take(m, "k")
		waiter := f.wait(asleep, m, "k")
		synctest.Wait()

		asked := w.Answered("ask")
		f.RDB.Del(f.Context(), f.Part("k", "queue"), f.Part("k", "alive"))
		time.Sleep(2 * time.Second) // longer than a sign-of-life interval
		redistest.CheckNow(t, w.Answered("ask") != asked, "nobody asked for the waiter")
		redistest.WantErr(t, f.RDB.Do(f.Context(), late.enter...).Err())
		redistest.Require(t, f.Queued("k"), 1, "the late copy took no place")
		unlock(t, held)
		f.wantHeld("k", true)
		w.CutOff("enter", "ask")
		close(asleep.wake)
		lock := waiter.Got()
		if lock.Token() <= held.Token() || lock.Token() != f.fence("k") {
			t.Errorf("token %d; %d was before, %d is the last", lock.Token(), held.Token(), f.fence("k"))
		}
		w.Heal()
		unlock(t, lock)
		f.wantHeld("k", false)
	})
}

// sleepyCtx is a ctx whose Done returns late: not before wake is closed, once sleep was
// called.
type sleepyCtx struct {
	context.Context
	mu     sync.Mutex
	asleep bool
	wake   chan struct{}
}

func (c *sleepyCtx) sleep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep = true
}

func (c *sleepyCtx) Done() <-chan struct{} {
	c.mu.Lock()
	asleep := c.asleep
	c.mu.Unlock()
	if asleep {
		<-c.wake
	}
	return c.Context.Done()
}

// lateCopy keeps the enter that was queued, and calls answered when its reply is there.
type lateCopy struct {
	enter    []any
	answered func()
}

func (c *lateCopy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *lateCopy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if r, ok := cmd.(interface{ Val() []int64 }); harness.CommandName(cmd) == "enter" && ok && len(r.Val()) > 0 && r.Val()[0] == 2 {
			c.enter = slices.Clone(cmd.Args())
			c.answered()
		}
		return err
	}
}

func (c *lateCopy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
