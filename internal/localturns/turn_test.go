package localturns

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// beforeUnlock has f run before what the next Unlock of the turn's desk is to do.
func (t *Turn) beforeUnlock(f func()) {
	t.line.mu.Lock()
	t.line.mu.later = []func(){f}
	t.line.mu.Mutex.Unlock()
}

// The Context of a turn says why the turn ended, although its lease ends in another way before the Context does.
func TestContextSaysWhyItsTurnEnded(t *testing.T) {
	inBubble(t, lease.Config{TTL: time.Minute}, Config{LocalFor: time.Second, MaxHold: time.Second}, func(b *bench) {
		turn := b.take(b.Context())
		ctx := turn.Context()
		<-ctx.Done()
		redistest.WantErr(b, context.Cause(ctx), leasehold.ErrMaxHold, redistest.Not(leasehold.ErrReleased))

		turn = b.take(b.Context())
		ctx = turn.Context()
		over := make(chan struct{})
		next := harness.Begin(b, func() error {
			turn := b.take(b.Context())
			<-over
			_ = turn.Release("unlock") // of the lease that was lost, or of another one
			return nil
		})
		time.Sleep(time.Millisecond)
		turn.beforeUnlock(func() { // it is lost in the next turn
			b.server.FlushAll()
			_ = redistest.ErrorOf(turn.visit.lease.RenewAndCount(false))
		})
		released := turn.Release("unlock")
		close(over)
		redistest.WantErr(b, released)
		redistest.WantErr(b, context.Cause(ctx), leasehold.ErrReleased, redistest.Not(leasehold.ErrLost))
		next.Got()
	})
}

// At MaxHold the Context of the turn ends before anybody else has the lock: a caller of the process that waits already, or
// one that comes in this moment.
func TestMaxHoldEndsTheContextFirst(t *testing.T) {
	for _, cfg := range []Config{{LocalFor: time.Second, MaxHold: time.Second}, {KeepFor: time.Second, MaxHold: time.Second}} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprintf("LocalFor %v, waits %v", cfg.LocalFor, waits), func(t *testing.T) {
				inBubble(t, lease.Config{TTL: 5 * time.Second}, cfg, func(b *bench) {
					turn := b.take(b.Context())
					ctx, next := turn.Context(), make(chan *Turn, 1)
					come := func() { next <- b.take(b.Context()) }
					if waits {
						go come()
					}
					time.Sleep(time.Second / 2)
					turn.beforeUnlock(func() {
						if !waits {
							go come()
						}
						time.Sleep(time.Second / 4)
						redistest.Check(b, len(next) == 0 || ctx.Err() != nil, "two callers have the lock")
					})
					<-ctx.Done()
					redistest.WantErr(b, (<-next).Release("unlock"))
				})
			})
		}
	}
}

// A ctx that hangs as the Context of a turn ends does not keep the lease.
func TestCtxThatHangsKeepsNoLease(t *testing.T) {
	inBubble(t, lease.Config{}, Config{LocalFor: time.Second}, func(b *bench) {
		other := b.manager(lease.Config{})
		parent, cancel := context.WithCancel(b.Context())
		defer cancel()
		var hangs atomic.Bool
		turn := b.take(harness.BrokenCtx{Context: parent, Before: func(method string) {
			if method == "Value" && hangs.Load() {
				<-parent.Done()
			}
		}})
		ctx := turn.Context()
		hangs.Store(true)
		go func() { _ = turn.Release("unlock") }()
		within, stop := context.WithTimeout(b.Context(), time.Second)
		defer stop()
		next := new(lease.Lease)
		redistest.WantErr(b, redistest.ErrorOf(other.Acquire(within, attempt, next)))
		redistest.WantErr(b, context.Cause(ctx), leasehold.ErrReleased)
		redistest.WantErr(b, next.Release("unlock"))
	})
}

// strangeCtx has an Err that hangs until it may tell, and an error with a method that looks at the handle.
type strangeCtx struct {
	context.Context
	tells chan struct{}
	is    func()
}

func (c strangeCtx) Err() error {
	if err := c.Context.Err(); err == nil {
		return nil
	}
	<-c.tells
	return c
}

func (c strangeCtx) Error() string     { return "strange" }
func (c strangeCtx) Is(err error) bool { c.is(); return err == context.Canceled }

// A caller that leaves the line asks its ctx why. Its methods hold up nobody else then: the next caller is served.
func TestErrorOfACtxHoldsUpNoOtherCaller(t *testing.T) {
	inBubble(t, lease.Config{}, Config{LocalFor: time.Second}, func(b *bench) {
		held := b.take(b.Context())
		parent, cancel := context.WithCancel(b.Context())
		strange := strangeCtx{parent, make(chan struct{}), func() {
			mu := &b.h.known("k").mu
			free := mu.TryLock()
			redistest.CheckNow(b, free, "a method of the error runs under the lock of the desk")
			mu.Unlock()
		}}
		left := harness.Begin(b, func() error { return redistest.ErrorOf(b.h.Acquire(strange, attempt, new(lease.Lease))) })
		synctest.Wait()
		cancel()
		synctest.Wait()
		redistest.WantErr(b, held.Release("unlock"))
		within, stop := context.WithTimeout(b.Context(), time.Second)
		defer stop()
		next, err := b.h.Acquire(within, attempt, new(lease.Lease))
		close(strange.tells)
		redistest.WantErr(b, left.Failed(), context.Canceled, leasehold.ErrBusy)
		redistest.WantErr(b, err)
		redistest.WantErr(b, next.Release("unlock"))
	})
}
