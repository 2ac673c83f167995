package lease_test

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// A ctx or MaxWait may end at the moment of the waiter's grant: the waiter is told that the lock was busy. If the waiter
// is revoked at that moment, it is told so. Redis answered in both cases.
func TestWaitThatEndsAtTheVerdict(t *testing.T) {
	for name, end := range map[string]struct {
		maxWait time.Duration
		revoked bool
	}{
		"ctx, granted": {0, false}, "MaxWait, granted": {time.Second, false}, "ctx, revoked": {0, true}, "MaxWait, revoked": {time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := redistest.Bubble(t)
				cfg, rdb := lockConfig(time.Minute), client()
				cfg.MaxWait = end.maxWait
				m := redistest.Must(lease.New(rdb, cfg))(t)
				defer func() { _ = m.Close(context.Background()) }()
				res := redistest.Must(m.Resource("k"))(t).(*permits.Resource)
				late := 0
				for range 30 { // the waiter sees its verdict or the end, each time by chance
					held := mustTake(t, m, "k")
					ctx, cancel := context.WithCancel(t.Context())
					l := new(lease.Lease)
					_, err := m.Acquire(ctx, lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true, OnWait: func() {
						if end.revoked {
							member := redistest.Must(rdb.ZRange(t.Context(), "leasehold:mtx:{t:k}:queue", 0, 0).Result())(t)[0]
							redistest.Must(m.Client().Do(t.Context(), res.Revoke(member, protocol.ListedID(member), "")))(t)
						}
						redistest.WantErr(t, held.Release("unlock"))
						time.Sleep(time.Second)
						synctest.Wait() // the verdict has come
						if end.maxWait == 0 {
							cancel()
						}
					}}, l)
					cancel()
					if err == nil {
						redistest.WantErr(t, l.Release("unlock"))
						continue
					}
					want := leasehold.ErrBusy
					if end.revoked {
						want = leasehold.ErrRevoked
					}
					redistest.CheckNow(t, errors.Is(err, want) && !errors.Is(err, leasehold.ErrUnavailable), "it is told: %v", err)
					if end.maxWait > 0 || errors.Is(err, context.Canceled) {
						late++
					}
				}
				redistest.Check(t, late > 0, "no wait of 30 ended at its verdict")
			})
		})
	}
}

// Another call may grant before the enter is answered. An answer that fails after the lease was lost does not change
// what its holder is told.
func TestLateEnterChangesNoReason(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		redistest.WantErr(t, rdb.FlushAll(t.Context()).Err())
		lost := l.Extend(t.Context(), time.Minute)
		l.EnterFails(errors.New("the connection broke"))
		redistest.Check(t, errors.Is(lost, leasehold.ErrLost) && l.Held("extend").Error() == lost.Error(), "the holder is told %v, then %v", lost, l.Held("extend"))
		redistest.WantErr(t, l.Release("unlock"), leasehold.ErrLost)
	})
}

// Close waits for what is under way: a program that closes the client after it takes nothing from a Release, nor from the
// question for the time, which goes beside a call once what is known of the server's clock is old.
func TestCloseWaits(t *testing.T) {
	for what, held := range map[string]string{"a Release": "leave", "the question for the time": "time"} {
		inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
			redistest.WantErr(t, mustTake(t, m, "k").Release("unlock"))
			time.Sleep(time.Minute)
			until := make(chan struct{})
			record(rdb).spoilWith(func(cmd redis.Cmder) error {
				if script(cmd) == held {
					<-until
				}
				return nil
			})
			l := mustTake(t, m, "k")
			released, closed := make(chan error, 1), make(chan error, 1)
			go func() { released <- l.Release("unlock") }()
			synctest.Wait()
			go func() { closed <- m.Close(context.Background()) }()
			synctest.Wait()
			redistest.Expect(t, len(closed), 0, "Close returned %d times while %s was under way", what)
			close(until)
			redistest.NoError(t, <-released)
			redistest.NoError(t, <-closed)
		})
	}
}

// If a caller's ctx panics while its enter is under way, the grant that comes then is given back.
func TestCtxThatPanicsLeavesNoLease(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		record(rdb).spoilWith(func(redis.Cmder) error {
			time.Sleep(10 * time.Millisecond) // the caller waits meanwhile
			return nil
		})
		var dones atomic.Int32 // the first is that of the send
		ctx := harness.BrokenCtx{Context: t.Context(), Before: func(method string) {
			if method == "Done" && dones.Add(1) > 1 {
				panic(method)
			}
		}}
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_, _ = take(ctx, m, "k")
		}()
		redistest.Check(t, <-ended != nil, "the ctx did not panic")
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := take(within, m, "k")
		redistest.Require(t, err, nil, "the next caller: %v")
		redistest.NoError(t, l.Release("unlock"))
	})
}

// A release that says that the lease was lost finds its Context ended, also if another goroutine is about to end it.
func TestReleaseOfALostLeaseEndsItsContext(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, _ *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		ctx := l.Context()
		l.EndUnheard()
		redistest.WantErr(t, ctx.Err())
		redistest.WantErr(t, l.Release("unlock"), leasehold.ErrLost)
		redistest.WantErr(t, context.Cause(ctx), leasehold.ErrLost)
	})
}

// A holder that learned nothing of its own renewals is told what another call met.
func TestLossIsExplainedByAnotherCall(t *testing.T) {
	inBubble(t, time.Second, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		record(rdb).spoil = func(cmd redis.Cmder) error {
			if strings.HasPrefix(script(cmd), "renew") {
				time.Sleep(5 * time.Second)
			}
			return refused
		}
		_, err := m.Acquire(t.Context(), lease.Attempt{Op: "lock", Key: "other", Permits: 1, Limit: 1}, new(lease.Lease))
		redistest.WantErr(t, err, refused)
		<-l.Context().Done()
		redistest.WantErr(t, context.Cause(l.Context()), leasehold.ErrLost, refused)
	})
}

// The longest duration is what people write for "no bound". A lease of that length is given back after an outage, too.
func TestLongestLeaseIsGivenBack(t *testing.T) {
	for _, ttl := range []time.Duration{time.Minute, math.MaxInt64} {
		inBubble(t, ttl, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
			l := mustTake(t, m, "k")
			redistest.WantErr(t, l.Extend(t.Context(), math.MaxInt64))
			rec := record(rdb)
			rec.spoilWith(func(redis.Cmder) error { return errCut })
			redistest.WantErr(t, l.Release("unlock"), leasehold.ErrUnavailable)
			time.Sleep(10 * time.Minute)
			rec.spoilWith(nil)
			time.Sleep(time.Minute)
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			next := redistest.Must(take(within, m, "k"))(t)
			redistest.NoError(t, next.Release("unlock"))
		})
	}
}

// A place begins anew after a grant that came too late, and tells of its new request.
func TestPlaceThatBeginsAnewIsNotSilent(t *testing.T) {
	inBubble(t, time.Second, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		held, next := mustTake(t, m, "k"), new(lease.Lease)
		place := redistest.Must(m.Enter(t.Context(), lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}, nil, next))(t)
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- place.Await(ctx, next) }()
		other := waiting(t, t.Context(), newLocks(t, rdb, time.Minute), "k")
		synctest.Wait()
		rec := record(rdb)
		rec.spoilWith(func(cmd redis.Cmder) error {
			if script(cmd) == "ask" {
				return errCut
			}
			return nil
		})
		rec.reply = func(cmd redis.Cmder) error {
			if script(cmd) == "leave" && rec.count("leave") == 1 {
				time.Sleep(time.Second) // it carries the grant
			}
			if script(cmd) == "enter" {
				time.Sleep(life.Silence / 2)
			}
			return nil
		}
		redistest.NoError(t, held.Release("unlock"))
		synctest.Wait()
		redistest.Check(t, rec.count("enter") == 1 && !place.Silent(), "it is silent as soon as it begins anew")
		rec.spoilWith(nil)
		time.Sleep(2 * life.AskEvery)
		redistest.Check(t, !place.Silent() && place.State().Limit == 1 && len(other) == 1, "it is silent: %v; its state: %+v; the other has the lock: %v", place.Silent(), place.State(), len(other) == 1)
		cancel()
		redistest.WantErr(t, <-ended, context.Canceled)
		redistest.NoError(t, (<-other).Release("unlock"))
	})
}
