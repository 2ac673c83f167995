package mutex

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A process takes turns all the time, and the server forgets its lease. From then on turns
// begin for LocalFor at most, though nobody waits elsewhere.
func TestTurnsEndAfterTheServerForgotTheLease(t *testing.T) {
	bubble(t, func(f *fixture) {
		const most = 50 * time.Millisecond
		a, _ := f.open(localFor(most))
		b, _ := f.open()
		var mu sync.Mutex
		lastBegin := map[string]time.Time{} // by lease
		stop := f.loop(a, 3, func(l *mutex.Lock) {
			mu.Lock()
			defer mu.Unlock()
			lastBegin[l.ID()] = time.Now()
		})
		time.Sleep(5 * most)
		mu.Lock()
		known := maps.Clone(lastBegin) // a may get another one right after this
		mu.Unlock()
		f.Server.Del(f.Part("k", "holders"))
		forgotten := time.Now()
		held := redistest.Must(b.Lock(f.Context(), "k"))(f)
		time.Sleep(5 * most)
		mu.Lock()
		for id := range known {
			redistest.AtMost(f, lastBegin[id].Sub(forgotten), most+5*time.Millisecond, "a turn on lease %s began %v after the server forgot it", id)
		}
		mu.Unlock()
		unlock(f, held)
		stop()
	})
}

// An Unlock that gives the lease back, and enters again for a waiter of its process, tells
// of a revocation as any other does.
func TestUnlockOfARevokedTurnTellsTheReason(t *testing.T) {
	bubble(t, func(f *fixture) {
		for _, most := range []time.Duration{0, 10 * time.Millisecond} {
			m, _ := f.open(localFor(most))
			other, _ := f.open()
			l := f.take(m, "k")
			time.Sleep(15 * time.Millisecond) // LocalFor is over
			waiter := line(f.Context(), m, f)
			redistest.WantErr(f, other.Revoke(f.Context(), "k", l.ID(), "a test"))
			redistest.WantErr(f, l.Unlock(), leasehold.ErrRevoked, redistest.Says("a test"))
			unlock(f, waiter.Got())
		}
	})
}

// The Observer is told the end of each turn that it was told the beginning of, and of no
// other: a waiter may leave, and the handle be closed, right as the turn comes.
func TestEachTurnThatBeginsEndsOnce(t *testing.T) {
	bubble(t, func(f *fixture) {
		var events harness.Told
		m, _ := f.open(localFor(time.Second), observer(&events))
		for range 100 {
			l := f.take(m, "k")
			ctx, cancel := context.WithCancel(f.Context())
			leaving, staying := line(ctx, m, f), line(f.Context(), m, f)
			cancel()
			unlock(f, l)
			<-leaving.Done
			if leaving.Err == nil {
				unlock(f, leaving.Value)
			}
			unlock(f, staying.Got())
		}
		l := f.take(m, "k")
		waiter := line(f.Context(), m, f)
		go func() { _ = l.Unlock() }()
		harness.Close(f.T, m)
		<-waiter.Done
		synctest.Wait()
		began, ended := events.Count(leasehold.EventAcquired, leasehold.OutcomeGranted), events.Count(leasehold.EventHoldEnded, "")
		redistest.Check(f, began == ended, "%d turns began, and %d ended", began, ended)
	})
}

// A lock is lost while no connection is free. The cause matches no ctx with which a call has tried to renew it: that of
// an Extend, or that of the question whether others wait.
func TestLossMatchesNoCtxOfARenewal(t *testing.T) {
	bubble(t, func(f *fixture) {
		var exhausted atomic.Bool
		noneIsFree := redistest.Around(func(ctx context.Context, _ []redis.Cmder, send func() error) error {
			if exhausted.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return send()
		})
		lost := func(l *mutex.Lock) {
			<-l.Context().Done()
			exhausted.Store(false)
			redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost, redistest.Not(context.DeadlineExceeded))
			redistest.WantErr(f, l.Unlock(), leasehold.ErrLost, redistest.Not(context.DeadlineExceeded))
		}
		open := func(mod ...func(*mutex.Config)) *mutex.Mutex {
			w := new(harness.Wire)
			rdb := f.Connect(w)
			rdb.AddHook(noneIsFree)
			return f.openOn(rdb, w, mod...)
		}
		l := f.take(open(ttl(time.Second)), "extended")
		exhausted.Store(true)
		ctx := f.Within(50 * time.Millisecond)
		redistest.WantErr(f, l.Extend(ctx, time.Second), context.DeadlineExceeded)
		lost(l)
		m := open(ttl(3*time.Second), localFor(500*time.Millisecond))
		unlock(f, f.take(m, "other"))
		time.Sleep(200 * time.Millisecond) // the question ends before the lock, as it shares a ctx
		first := f.take(m, "k")
		second := line(f.Context(), m, f)
		time.Sleep(400 * time.Millisecond) // LocalFor is nearly over
		exhausted.Store(true)
		unlock(f, first)
		lost(second.Got())
	})
}

// A lock that was lost before Close stays lost: its holder is told so.
func TestLossBeforeCloseIsToldTheHolder(t *testing.T) {
	withAndWithoutLocalFor(t, func(f *fixture, most time.Duration) {
		for i := range 20 {
			m, _ := f.open(ttl(time.Second), localFor(most))
			l := f.take(m, strconv.Itoa(i))
			ctx, deadline := l.Context(), l.Deadline()
			f.Server.SetError("the server is away")
			time.Sleep(500 * time.Millisecond)
			for l.Deadline() != deadline {
				deadline = l.Deadline()
			}
			time.Sleep(time.Until(deadline))
			closed := harness.Begin(f, func() error { return m.Close(f.Context()) })
			<-ctx.Done()
			cause, err := context.Cause(ctx), l.Unlock()
			redistest.WantErr(f, cause, leasehold.ErrLost)
			redistest.WantErr(f, err, leasehold.ErrLost)
			f.Server.SetError("")
			<-closed.Done
		}
	})
}

// withAndWithoutLocalFor runs test for each, in a bubble.
func withAndWithoutLocalFor(t *testing.T, test func(f *fixture, most time.Duration)) {
	for _, most := range []time.Duration{0, 20 * time.Millisecond} {
		t.Run(fmt.Sprintf("LocalFor %v", most), func(t *testing.T) {
			bubble(t, func(f *fixture) { test(f, most) })
		})
	}
}

// RetryAfter counts from when the error is made, not from when Redis told how busy it is.
func TestRetryAfterIsNotAfterTheFirstExpiry(t *testing.T) {
	withAndWithoutLocalFor(t, func(f *fixture, most time.Duration) {
		m, _ := f.open(ttl(30*time.Second), localFor(most), func(c *mutex.Config) { c.MaxWait = 25 * time.Second })
		for range 2 { // long holds are what the handle has seen
			l := f.take(m, "seen")
			time.Sleep(time.Minute)
			unlock(f, l)
		}
		dead, wire := f.open(ttl(30 * time.Second))
		held := f.take(dead, "k")
		wire.Cut()
		granted := time.Now()
		busy := harness.Busy(f, redistest.ErrorOf(m.Lock(f.Context(), "k")))
		left := 30*time.Second - time.Since(granted)
		redistest.AtMost(f, busy.RetryAfter, left+100*time.Millisecond, "RetryAfter is %v")
		_ = held.Unlock()
	})
}

// A release that finds its lease lost is told of as stale, also where it queues again for
// another caller of its process.
func TestReleaseOfALostTurnIsStale(t *testing.T) {
	bubble(t, func(f *fixture) {
		for i := range 20 {
			var events harness.Told
			m, _ := f.open(ttl(time.Second), localFor(20*time.Millisecond), observer(&events))
			key := strconv.Itoa(i)
			l := f.take(m, key)
			f.Server.SetError("the server is away")
			ctx, cancel := context.WithCancel(f.Context())
			waiter := f.start(ctx, m, key)
			time.Sleep(500 * time.Millisecond)
			time.Sleep(time.Until(l.Deadline()))
			redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
			redistest.Expect(f, events.Count(leasehold.EventStaleRelease, ""), 1, "%d stale releases were told of")
			cancel()
			<-waiter.Done
			f.Server.SetError("")
		}
	})
}

// A process that uses many keys forgets lines that nobody uses. That of a TryLock under way is used.
func TestLineOfATryLockIsKept(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, wire := f.open(localFor(time.Second))
		unlock(f, f.take(m, "warm")) // the script is known
		release := wire.StallReplies("enter")
		trying := harness.Start(f.T, func() (*mutex.Lock, error) { return m.TryLock(f.Context(), "k") })
		synctest.Wait()
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(f.Context())
		for i := range 4000 { // of each line beyond 256 eight others are looked at
			all.Go(func() { _, _ = m.TryLock(ctx, strconv.Itoa(i)) })
		}
		synctest.Wait()
		cancel()
		all.Wait()
		release()
		held := trying.Got()
		waiter := line(f.Context(), m, f)
		redistest.Expect(f, f.Queued("k"), 0, "%d wait in Redis for a lock that their own process holds")
		unlock(f, held)
		unlock(f, waiter.Got())
	})
}

// A hook ends the goroutines that repeat the leave of a lease. The release says so, and the
// waiters of the process get their turn once the lease has expired.
func TestGoroutineThatRepeatsALeaveIsEnded(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, wire := f.open(localFor(10*time.Millisecond), ttl(5*time.Second))
		l := f.take(m, "k")
		time.Sleep(15 * time.Millisecond) // LocalFor is over
		waiter := line(f.Context(), m, f)
		leaves := 0
		wire.Fail(func(name string) error {
			if name != "leave" {
				return nil
			}
			if leaves++; leaves > 1 {
				runtime.Goexit() // of the leave that is sent again, by itself
			}
			return io.ErrUnexpectedEOF
		})
		redistest.WantErr(f, l.Unlock(), leasehold.ErrUnavailable)
		next := waiter.Got()
		wire.Heal()
		unlock(f, next)
	})
}

// renamed is a Cluster client of one server, which has another name after a failover.
type renamed struct {
	*redis.Client
	node atomic.Pointer[redis.Client] // has the name, and sends nothing
}

func (r *renamed) ReloadState(context.Context) {}
func (r *renamed) Options() *redis.ClusterOptions {
	return &redis.ClusterOptions{ReadTimeout: time.Second, WriteTimeout: time.Second}
}

func (r *renamed) MasterForKey(context.Context, string) (*redis.Client, error) {
	return r.node.Load(), nil
}

// After a failover the clock of the new primary is not known, so the leave goes by itself before the process queues
// again. A hook ends its goroutine. The release says so, and so does the waiter, for which no place was taken.
func TestGoroutineThatGivesBackToQueueAgainIsEnded(t *testing.T) {
	bubble(t, func(f *fixture) {
		wire := &harness.Wire{}
		rdb := &renamed{Client: f.Connect(wire).(*redis.Client)}
		rename := func(name string) {
			nowhere := func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrUnexpectedEOF }
			node := redis.NewClient(&redis.Options{Addr: name, Dialer: nowhere})
			f.Cleanup(func() { _ = node.Close() })
			rdb.node.Store(node)
		}
		rename("127.0.0.1:1")
		m := f.openOn(rdb, wire, localFor(10*time.Millisecond))
		l := f.take(m, "k")
		time.Sleep(15 * time.Millisecond) // LocalFor is over
		waiter := line(f.Context(), m, f)
		rename("127.0.0.1:2")
		wire.Fail(func(name string) error {
			switch name {
			case "time":
				return io.ErrUnexpectedEOF
			case "leave":
				runtime.Goexit()
			}
			return nil
		})
		ended := redistest.Says("leasehold: mutex: ", "a hook of the client ended the goroutine")
		redistest.WantErr(f, l.Unlock(), leasehold.ErrUnavailable, ended)
		redistest.WantErr(f, waiter.Failed(), leasehold.ErrUnavailable, ended)
	})
}
