package multi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestAllThatIsFreeTakesOneRoundTrip(t *testing.T) {
	each(t, func(f *fixture) {
		p := f.open()
		f.release(p.take(p.lockItems("x", "y")...)) // the scripts are known
		trips := p.wire.TripCounter()
		l := redistest.Must(multi.Acquire(f.Context(), multi.Lock(p.locks, "y"), multi.Lock(p.locks, "x")))(f)
		n := trips()
		redistest.Check(f, f.Addr == "" || n.Scripts == 1, "two free locks took %d round trips; want 1", n.Scripts)
		x, y := l.Token(p.locks, "x"), l.Token(p.locks, "y")
		redistest.Check(f, x != 0 && y != 0 && l.Token(p.locks, "z") == 0 && l.Token(nil, "x") == 0, "tokens %d and %d", x, y)
		left := time.Until(l.Deadline())
		redistest.Check(f, left > 0 && left <= 3*time.Second && l.Context().Err() == nil, "the lease lasts for %v (%v)", left, l.Context().Err())
		f.WantHeld("x", 1)
		f.WantHeld("y", 1)
		trips()
		f.release(l)
		n = trips()
		redistest.Check(f, f.Addr == "" || n.Scripts == 1, "two locks were given back in %d round trips; want 1", n.Scripts)
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrReleased)
		redistest.WantErr(f, l.Release(), leasehold.ErrReleased)
		f.wantFree("x", "y")
	})
}

// While a call waits for the first item, it holds nothing behind it.
func TestNothingIsHeldBehindAnItemThatIsWaitedFor(t *testing.T) {
	each(t, func(f *fixture) {
		p, other := f.open(), f.open()
		a := other.takeLock("a")
		w := p.wait(f.Context(), "a", p.lockItems("c", "b", "a")...)
		b := redistest.Must(other.locks.Lock(f.Context(), "b"))(f) // the call's try of b may come first
		f.wantFree("c")
		redistest.NoError(f, a.Unlock())
		redistest.Eventually(f, "the call to wait for b, and to hold a", func() bool { return f.Queued("b") == 1 })
		f.WantHeld("a", 1)
		f.wantFree("c")
		redistest.NoError(f, b.Unlock())
		f.release(w.Got())
	})
}

// Behind an item that another caller of the process waits for nothing is tried. A TryAcquire is told how busy that is, unless
// Redis has fallen silent since it said so.
func TestNothingIsTriedBehindAKnownQueue(t *testing.T) {
	bubble(t, func(f *fixture) {
		p, other := f.open(), f.open()
		a := other.takeLock("a")
		first := p.wait(f.Context(), "a", p.lockItems("a")...)
		time.Sleep(100 * time.Millisecond) // the process knows that it waits
		enters := p.wire.Sent("enter")
		second := p.wait(f.Context(), "a", p.lockItems("a", "b", "c")...)
		redistest.Expect(f, p.wire.Sent("enter")-enters, 1, "%d enters; want that of the first item alone")
		enters = p.wire.Sent("enter")
		try := func() error { return redistest.ErrorOf(multi.TryAcquire(f.Context(), p.lockItems("b", "a")...)) }
		err := try()
		redistest.WantErr(f, err, leasehold.ErrBusy, redistest.Says(f.Family+"/a"))
		busy := harness.Busy(f, err)
		redistest.CheckNow(f, busy.InUse == 1 && busy.Waiting > 0, "%v does not tell how busy the lock is", err)
		redistest.Expect(f, p.wire.Sent("enter")-enters, 0, "TryAcquire sent %d enters beside a waiter of its process")
		time.Sleep(100 * time.Millisecond) // the process knows that second waits, too
		p.wire.Cut()
		time.Sleep(4 * time.Second)
		redistest.WantErr(f, try(), leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy))
		p.wire.Heal()
		redistest.NoError(f, a.Unlock())
		for _, w := range []*waiting{first, second} {
			f.release(w.Got())
		}
	})
}

// An item that was refused is waited for alone: it is likely to be refused again, and what is
// behind it would go back and forth.
func TestRefusedItemIsWaitedForAlone(t *testing.T) {
	each(t, func(f *fixture) {
		p, other := f.open(), f.open()
		f.release(p.take(p.lockItems("a", "b", "c")...)) // the script is known, on a Cluster to the node of each key
		b := other.takeLock("b")
		before := p.wire.Sent("enter")
		w := p.wait(f.Context(), "b", p.lockItems("a", "b", "c")...)
		redistest.Eventually(f, "the answers", func() bool { return p.wire.Answered("enter") == p.wire.Sent("enter") })
		redistest.Expect(f, p.wire.Sent("enter")-before, 4, "%d enters; want that of each item, and one more of the refused item")
		redistest.NoError(f, b.Unlock())
		f.release(w.Got())
	})
}

func TestTryAcquireTakesAllOrNothing(t *testing.T) {
	each(t, func(f *fixture) {
		p, other := f.open(), f.open()
		b := other.takeLock("b")
		_, err := multi.TryAcquire(f.Context(), append(p.lockItems("c", "b", "a"), multi.Permits(p.caps, "a", 1))...)
		redistest.WantErr(f, err, leasehold.ErrBusy, redistest.Says("try acquire", f.Family+"/b"))
		f.wantFree("a", "c")
		redistest.NoError(f, b.Unlock())
		f.release(p.take(append(p.lockItems("c", "b", "a"), multi.Permits(p.caps, "a", 3))...))
	})
}

// A call that fails leaves nothing behind, whatever its error.
func TestNothingIsHeldAfterAnError(t *testing.T) {
	each(t, func(f *fixture) {
		for what, c := range map[string]struct {
			maxWait time.Duration
			end     func(p *process, cancel func())
			want    error
		}{
			"ctx":      {0, func(_ *process, cancel func()) { cancel() }, context.Canceled},
			"closed":   {0, func(p *process, _ func()) { harness.Close(f.T, p.locks) }, leasehold.ErrClosed},
			"max wait": {time.Second, func(*process, func()) {}, leasehold.ErrBusy},
			"lost":     {0, func(*process, func()) { f.RDB.Del(f.Context(), f.Part("a", "holders")) }, leasehold.ErrLost},
		} {
			p, other := f.open(func(cfg *mutex.Config) { cfg.MaxWait = c.maxWait }), f.open()
			ctx, cancel := context.WithCancel(f.Context())
			defer cancel()
			b := other.takeLock("b")
			w := p.wait(ctx, "b", append(p.lockItems("c", "b", "a"), multi.Permits(p.caps, "p", 2))...)
			c.end(p, cancel)
			redistest.WantErr(f, w.Within(redistest.Soon, what).Err, c.want)
			redistest.Check(f, w.Value == nil, "%s: there is a lease", what)
			redistest.NoError(f, b.Unlock())
			f.wantFree("a", "b", "c", "p")
		}
	})
}

// endsUnheard is a ctx that has ended at its deadline before its Done says so.
type endsUnheard struct {
	context.Context
	at time.Time
}

func (c endsUnheard) Err() error {
	if time.Now().Before(c.at) {
		return nil
	}
	return context.DeadlineExceeded
}

// If an item is lost and ctx ends in the same moment, the error is that of the one or of the other.
func TestLossAsCtxEnds(t *testing.T) {
	bubble(t, func(f *fixture) {
		p, other := f.open(func(c *mutex.Config) { c.MaxHold = time.Second }), f.open()
		b := other.takeLock("b")
		ctx := endsUnheard{f.Context(), time.Now().Add(time.Second)}
		redistest.WantErr(f, redistest.ErrorOf(multi.Acquire(ctx, p.lockItems("a", "b")...)), leasehold.ErrMaxHold)
		redistest.NoError(f, b.Unlock())
		f.wantFree("a", "b")
	})
}

// The Context ends with the first item that is lost, and says which one that was.
func TestContextEndsWithTheFirstLoss(t *testing.T) {
	each(t, func(f *fixture) {
		p := f.open()
		l := p.take(p.lockItems("a", "b")...)
		redistest.Require(f, redistest.Must(f.RDB.Del(f.Context(), f.Part("b", "holders")).Result())(f), 1, "%d locks were deleted")
		redistest.Get(f, "the end of the Context", l.Context().Done())
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost, redistest.Says(f.Family+"/b"))
		redistest.WantErr(f, l.Release(), leasehold.ErrLost)
		f.wantFree("a", "b")
		err := multi.Do(f.Context(), func(ctx context.Context, _ *multi.Lease) error {
			f.RDB.Del(f.Context(), f.Part("a", "holders"))
			<-ctx.Done()
			return nil
		}, p.lockItems("a", "b")...)
		redistest.WantErr(f, err, leasehold.ErrLost)
		f.wantFree("a", "b")
		// The caller's own lock is above the inner call.
		err = multi.Do(f.Context(), func(ctx context.Context, _ *multi.Lease) error {
			_, err := p.locks.Lock(ctx, "a")
			return err
		}, p.lockItems("a", "b")...)
		redistest.WantErr(f, err, leasehold.ErrInvalid)
	})
}

func TestItemsAreChecked(t *testing.T) {
	each(t, func(f *fixture) {
		p, other := f.open(), f.open()
		rdb := f.Connect(&harness.Wire{})
		total := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: f.Family, Limit: 3, Total: 5}))(f)
		for text, items := range map[string][]multi.Item{
			"acquire: there are no items":     {},
			"acquire: item 2 is empty":        {multi.Lock(p.locks, "a"), {}},
			"key is empty":                    p.lockItems("a", ""),
			"n is 0":                          {multi.Permits(p.caps, "a", 0)},
			"lock k: the mutex is nil":        {multi.Lock(nil, "k")},
			"permits k: the semaphore is nil": {multi.Permits(nil, "k", 1)},
			"named twice":                     {multi.Lock(p.locks, "a"), multi.Lock(p.locks, "b"), multi.Lock(other.locks, "a")},
			"Total":                           {multi.Permits(total, "a", 1), multi.Permits(total, "b", 1)},
		} {
			before := p.wire.Sent()
			for _, acquire := range []func(context.Context, ...multi.Item) (*multi.Lease, error){multi.Acquire, multi.TryAcquire} {
				redistest.WantErr(f, redistest.ErrorOf(acquire(f.Context(), items...)), leasehold.ErrInvalid, redistest.Says("leasehold: ", text))
			}
			redistest.Expect(f, p.wire.Sent()-before, 0, "%s: %d commands were sent", text)
		}
		// This is seen by Redis alone, because a limit may have been set there.
		redistest.WantErr(f, redistest.ErrorOf(multi.Acquire(f.Context(), multi.Permits(p.caps, "a", 4), multi.Lock(p.locks, "a"))), leasehold.ErrInvalid)
		f.wantFree("a")
		// An item that is busy does not hide it.
		b := other.takeLock("b")
		redistest.WantErr(f, redistest.ErrorOf(multi.TryAcquire(f.Context(), multi.Permits(p.caps, "a", 4), multi.Lock(p.locks, "b"))), leasehold.ErrInvalid)
		redistest.NoError(f, b.Unlock())
		f.wantFree("a")
		// A family with a total and one without are different resources.
		l := redistest.Must(multi.Acquire(f.Context(), multi.Permits(total, "a", 1), multi.Permits(p.caps, "a", 1)))(f)
		f.release(l)
		harness.Close(f.T, total)
	})
}

// A turn that waits for another item would stop the line of its process.
func TestLocalForIsPassedBy(t *testing.T) {
	each(t, func(f *fixture) {
		p, other := f.open(func(c *mutex.Config) { c.LocalFor = 20 * time.Millisecond }), f.open()
		b := other.takeLock("b")
		w := p.wait(f.Context(), "b", p.lockItems("a", "b")...)
		line := p.wait(f.Context(), "a", p.lockItems("a")...)
		redistest.Eventually(f, "both to wait", func() bool { return f.Queued("a") == 1 })
		redistest.NoError(f, b.Unlock())
		for _, w := range []*waiting{w, line} {
			f.release(w.Got())
		}
	})
}

// What the process keeps of an item and nobody uses is given back first: a try would be refused by it.
func TestKeptItemsAreGivenBackFirst(t *testing.T) {
	each(t, func(f *fixture) {
		p := f.open(func(cfg *mutex.Config) { cfg.KeepFor = time.Second })
		redistest.NoError(f, p.takeLock("x").Unlock())
		redistest.NoError(f, redistest.Must(p.caps.AcquireN(f.Context(), "x", 3))(f).Release())
		f.WantHeld("x", 1) // it rests
		f.release(p.take(multi.Lock(p.locks, "x"), multi.Lock(p.locks, "y"), multi.Permits(p.caps, "x", 2)))
		f.wantFree("x", "y")
	})
}

// Items may be on different servers. A hook that ends the goroutine of a release is no confirmation.
func TestReleaseWhoseHookEndsItsGoroutine(t *testing.T) {
	var items []multi.Item
	var second harness.Wire
	for i, wire := range []*harness.Wire{{}, &second} {
		rdb := redis.NewClient(&redis.Options{Addr: redistest.Mini(t).Addr()})
		defer rdb.Close()
		rdb.AddHook(wire)
		m := redistest.Must(mutex.New(rdb, mutex.Config{Name: fmt.Sprint("accounts", i)}))(t)
		defer harness.Close(t, m)
		items = append(items, multi.Lock(m, "k"))
	}
	l := redistest.Must(multi.Acquire(t.Context(), items...))(t)
	var once sync.Once
	second.Fail(func(string) error { once.Do(runtime.Goexit); return nil })
	redistest.WantErr(t, l.Release(), leasehold.ErrUnavailable, redistest.Says("release accounts1/k"))
	l = redistest.Must(multi.Acquire(t.Context(), items...))(t) // it was given back all the same
	redistest.NoError(t, l.Release())
}

// Observers count what callers got, and no try that was given back.
func TestObserversCountNoTries(t *testing.T) {
	bubble(t, func(f *fixture) {
		var events harness.Told
		p, other := f.open(func(c *mutex.Config) { c.Observer = &events }), f.open()
		a := other.takeLock("a")
		w := p.wait(f.Context(), "a", p.lockItems("a", "b", "c")...)
		time.Sleep(100 * time.Millisecond)
		redistest.NoError(f, a.Unlock())
		f.release(w.Got())
		redistest.WantErr(f, redistest.ErrorOf(multi.TryAcquire(f.Context(), append(p.lockItems("a"), multi.Permits(p.caps, "a", 4))...)), leasehold.ErrInvalid)
		time.Sleep(time.Second)
		got := map[string]int{}
		for _, e := range events.Events(leasehold.EventAcquired, leasehold.EventHoldEnded, leasehold.EventLateGrant) {
			got[e.Type+" "+e.Outcome]++
		}
		want := map[string]int{"mutex granted": 3, "mutex released": 3, "semaphore invalid": 1}
		redistest.Check(f, maps.Equal(got, want), "the Observer was told %v; want %v", got, want)
	})
}

var errWork = errors.New("work failed")

func TestDoReturnsWhatFnDid(t *testing.T) {
	each(t, func(f *fixture) {
		p := f.open()
		redistest.WantErr(f, multi.Do(f.Context(), func(context.Context, *multi.Lease) error { return errWork }, p.lockItems("a", "b")...), errWork)
		f.wantFree("a", "b")
		func() {
			defer func() { _ = recover() }()
			_ = multi.Do(f.Context(), func(context.Context, *multi.Lease) error { panic("it") }, p.lockItems("a", "b")...)
		}()
		f.wantFree("a", "b")
	})
}

// Several goroutines may close a handle at the same time, as after a Close that its ctx ended.
func TestClosesAtOnce(t *testing.T) {
	each(t, func(f *fixture) {
		locks := mutex.Config{Name: f.Family, TTL: time.Second, LocalFor: 20 * time.Millisecond, KeepFor: 300 * time.Millisecond}
		values := singleflight.Config[string]{Name: f.Family, TTL: time.Second, MaxLoads: 1, NearFor: time.Second}
		for range 50 {
			m := redistest.Must(mutex.New(f.RDB, locks))(f)
			redistest.Must(m.Lock(f.Context(), "x"))(f)
			g := redistest.Must(singleflight.New(f.RDB, values))(f)
			redistest.Must(g.Do(f.Context(), "x", func(context.Context) (string, error) { return "v", nil }))(f)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { harness.Close(f.T, m) })
				all.Go(func() { harness.Close(f.T, g) })
			}
			all.Wait()
		}
	})
}
