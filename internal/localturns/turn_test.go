package localturns

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// beforeUnlock has f run before what the next Unlock of the turn's desk is to do.
func (t *Turn) beforeUnlock(f func()) {
	t.line.mu.Lock()
	t.line.mu.later = []func(){f}
	t.line.mu.Mutex.Unlock()
}

// The Context of a turn says why the turn ended, although its lease ends in another way before the Context does.
func TestContextSaysWhyItsTurnEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Mutex, lease.Config{TTL: time.Minute})
		h := New(m, Config{LocalFor: time.Second, MaxHold: time.Second})
		a := lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}
		turn := redistest.Must(h.Acquire(t.Context(), a, new(lease.Lease)))(t)
		ctx := turn.Context()
		<-ctx.Done()
		redistest.WantErr(t, context.Cause(ctx), leasehold.ErrMaxHold, redistest.Not(leasehold.ErrReleased))

		turn = redistest.Must(h.Acquire(t.Context(), a, new(lease.Lease)))(t)
		ctx = turn.Context()
		over := make(chan struct{})
		go func() {
			next := redistest.Must(h.Acquire(t.Context(), a, new(lease.Lease)))(t)
			<-over
			_ = next.Release("unlock") // of the lease that was lost, or of another one
		}()
		time.Sleep(time.Millisecond) // a token is not ahead of the clock
		turn.beforeUnlock(func() {   // it is lost in the next turn
			server.FlushAll()
			_ = redistest.ErrorOf(turn.visit.lease.RenewAndCount(false))
		})
		released := turn.Release("unlock")
		close(over)
		redistest.WantErr(t, released)
		redistest.WantErr(t, context.Cause(ctx), leasehold.ErrReleased, redistest.Not(leasehold.ErrLost))
		synctest.Wait()
	})
}

// At MaxHold the Context of the turn ends before anybody else has the lock: a caller of the process that waits already, or
// one that comes in this moment.
func TestMaxHoldEndsTheContextFirst(t *testing.T) {
	for _, cfg := range []Config{{LocalFor: time.Second}, {KeepFor: time.Second}} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprintf("LocalFor %v, waits %v", cfg.LocalFor, waits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, client := redistest.Bubble(t)
					m := newManager(t, client(), keys.Mutex, lease.Config{TTL: 5 * time.Second, Keeps: cfg.KeepFor > 0})
					cfg.MaxHold = time.Second
					h := New(m, cfg)
					defer h.StopKeeping()
					turn := redistest.Must(h.Acquire(t.Context(), attempt, new(lease.Lease)))(t)
					ctx, next := turn.Context(), make(chan *Turn, 1)
					come := func() { next <- redistest.Must(h.Acquire(t.Context(), attempt, new(lease.Lease)))(t) }
					if waits {
						go come()
					}
					time.Sleep(time.Second / 2)
					turn.beforeUnlock(func() {
						if !waits {
							go come()
						}
						time.Sleep(time.Second / 4)
						redistest.Check(t, len(next) == 0 || ctx.Err() != nil, "two callers have the lock")
					})
					<-ctx.Done()
					redistest.WantErr(t, (<-next).Release("unlock"))
				})
			})
		}
	}
}

// hangingCtx has a Value that hangs once it is to, until the ctx ends.
type hangingCtx struct {
	context.Context
	hangs *atomic.Bool
}

func (c hangingCtx) Value(key any) any {
	if c.hangs.Load() {
		<-c.Done()
	}
	return c.Context.Value(key)
}

// A ctx that hangs as the Context of a turn ends does not keep the lease.
func TestCtxThatHangsKeepsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		m, other := newManager(t, client(), keys.Mutex, lease.Config{}), newManager(t, client(), keys.Mutex, lease.Config{})
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		hangs := new(atomic.Bool)
		turn := redistest.Must(New(m, Config{LocalFor: time.Second}).Acquire(hangingCtx{parent, hangs}, attempt, new(lease.Lease)))(t)
		ctx := turn.Context()
		hangs.Store(true)
		go func() { _ = turn.Release("unlock") }()
		within, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		next := new(lease.Lease)
		redistest.WantErr(t, redistest.ErrorOf(other.Acquire(within, attempt, next)))
		redistest.WantErr(t, context.Cause(ctx), leasehold.ErrReleased)
		redistest.WantErr(t, next.Release("unlock"))
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
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		h := New(newManager(t, client(), keys.Mutex, lease.Config{}), Config{LocalFor: time.Second})
		held := redistest.Must(h.Acquire(t.Context(), attempt, new(lease.Lease)))(t)
		parent, cancel := context.WithCancel(t.Context())
		strange := strangeCtx{parent, make(chan struct{}), func() {
			free := h.known("k").mu.TryLock()
			if redistest.Check(t, free, "a method of the error runs under the lock of the desk"); free {
				h.known("k").mu.Unlock()
			}
		}}
		left := make(chan error, 1)
		go func() { left <- redistest.ErrorOf(h.Acquire(strange, attempt, new(lease.Lease))) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		redistest.WantErr(t, held.Release("unlock"))
		within, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		next, err := h.Acquire(within, attempt, new(lease.Lease))
		close(strange.tells)
		redistest.WantErr(t, <-left, context.Canceled, leasehold.ErrBusy)
		redistest.WantErr(t, err)
		redistest.WantErr(t, next.Release("unlock"))
	})
}
