package semaphore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func total(n int) func(*semaphore.Config) { return func(c *semaphore.Config) { c.Total = n } }

// part is the documented name of a Redis key of the family as a whole.
func (f *fixture) whole(part string) string {
	return fmt.Sprintf("leasehold:sem:{%s}:%s", f.Family, part)
}

// A request takes its permits of its key and of the total together, or none.
func TestTotalBoundsAllKeysTogether(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(limit(3), total(5))
		a, b := f.take(s, "a", 3), f.take(s, "b", 2)
		for key, want := range map[string]leasehold.BusyError{
			"a": {InUse: 3, Limit: 3, Total: 5, TotalInUse: 5}, "b": {InUse: 2, Limit: 3, Total: 5, TotalInUse: 5},
			"c": {Limit: 3, Total: 5, TotalInUse: 5},
		} {
			busy := harness.Busy(f, redistest.ErrorOf(s.TryAcquire(f.Context(), key)))
			redistest.Check(f, busy.RetryAfter > 0 && busy.RetryAfter <= time.Second,
				"%s: RetryAfter is %v; want at most 1 s, since no hold was observed", key, busy.RetryAfter)
			want.RetryAfter = busy.RetryAfter
			redistest.Check(f, *busy == want, "%s: %+v; want %+v", key, *busy, want)
		}
		state := f.inspect(s, "b")
		redistest.Check(f, state.Limit == 3 && state.InUse == 2 && state.Total == 5 && state.TotalInUse == 5 && len(state.Holders) == 1 && state.Holders[0].ID == b.ID(), "%+v", state)
		release(f, b)
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquireN(f.Context(), "c", 3)), leasehold.ErrBusy)
		c := f.take(s, "c", 2)
		release(f, a)
		release(f, c)
		for _, part := range []string{"holders", "places", "queue", "line", "alive", "ready", "turns", "limits"} {
			redistest.Check(f, f.RDB.Exists(f.Context(), f.whole(part)).Val() == 0, "%s is left", part)
		}
	})
}

// MaxWaiters bounds the waiters of a key, MaxWaitersTotal those of all.
func TestMaxWaitersOfAKeyAndOfAll(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(limit(1), total(1), func(c *semaphore.Config) { c.MaxWaiters, c.MaxWaitersTotal = 2, 3 })
		l := f.take(s, "a", 1)
		var all []*waiting
		for i, key := range []string{"a", "a", "b"} {
			all = append(all, f.start(s, key, 1))
			redistest.Eventually(f, "the waiter in line", func() bool { return f.RDB.ZCard(f.Context(), f.whole("queue")).Val() > int64(i) })
		}
		for key, n := range map[string]int{"a": 2, "c": 0} {
			err := redistest.ErrorOf(s.Acquire(f.Context(), key))
			redistest.WantErr(f, err, leasehold.ErrQueueFull)
			redistest.Expect(f, harness.Busy(f, err).Waiting, n, "%s: %d are waiting", key)
		}
		release(f, l)
		var served sync.WaitGroup
		for _, w := range all {
			served.Go(func() { redistest.NoError(f, w.Got().Release()) })
		}
		served.Wait()
	})
}

// A handle knows the server's clock only to within a round trip, which was slow. SetLimit returns
// once the server's clock has surely passed the time that the handle took for that of the call.
// So each setting that is called after that counts.
func TestSetLimitWaitsForTheClock(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, wire := f.open()
		wire.Stall()
		ctx, cancel := context.WithCancel(f.Context())
		waits := harness.Begin(f, func() error { return redistest.ErrorOf(s.Acquire(ctx, "k")) })
		const slow = 300 * time.Millisecond
		time.Sleep(slow) // the question for the time is under way
		cancel()
		redistest.WantErr(f, waits.Failed(), context.Canceled)
		wire.Unstall()
		synctest.Wait()
		began := time.Now()
		redistest.WantErr(f, s.SetLimit(f.Context(), "k", 3))
		redistest.Between(f, time.Since(began), slow, slow+10*time.Millisecond, "SetLimit returned after %v")
		other, _ := f.open()
		redistest.WantErr(f, other.SetLimit(f.Context(), "k", 4))
		redistest.Expect(f, f.RDB.Get(f.Context(), f.Part("k", "limit")).Val(), "4", "the limit is %s; want that of the later setting")
	})
}

func TestSettingsThatCannotBe(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open(limit(1), total(2))
		plain, _ := f.open(limit(1))
		sent := wire.Sent()
		for _, c := range []struct {
			err  error
			want []string
		}{
			{s.SetLimit(f.Context(), "k", -1), []string{"limit is -1", "1 to 100000"}},
			{s.SetLimit(f.Context(), "k", 100_001), []string{"limit is 100001"}},
			{s.SetLimit(f.Context(), "", 1), []string{"key is empty"}},
			{s.SetTotal(f.Context(), -1), []string{"total is -1", "1 to 1000000"}},
			{s.SetTotal(f.Context(), 1_000_001), []string{"total is 1000001"}},
			{plain.SetTotal(f.Context(), 1), []string{"Total is 0"}},
		} {
			redistest.WantErr(f, c.err, leasehold.ErrInvalid, redistest.Says(c.want...))
		}
		redistest.Expect(f, wire.Sent()-sent, 0, "%d commands were sent")
		redistest.WantErr(f, s.SetTotal(harness.Ended(f.Context()), 1), context.Canceled)
		harness.Close(f.T, s)
		redistest.WantErr(f, s.SetTotal(f.Context(), 1), leasehold.ErrClosed)
	})
}

// Keys appear in Redis as a hash only.
func TestTotalWithHashedKeys(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(limit(1), total(2), func(c *semaphore.Config) { c.HashKeys = true })
		l := f.take(s, "personal", 1)
		redistest.WantErr(f, s.SetLimit(f.Context(), "personal", 2))
		again := f.take(s, "personal", 1)
		for _, m := range append(f.RDB.ZRange(f.Context(), f.whole("holders"), 0, -1).Val(), f.RDB.HKeys(f.Context(), f.whole("limits")).Val()...) {
			redistest.Check(f, len(m) >= 32 && m[:8] != "personal", "%q shows the key", m)
		}
		release(f, l)
		release(f, again)
	})
}

// All permits of a lease that has expired are free at once, also more than one call drops.
func TestExpiredPermitsOfALargeLeaseAreFree(t *testing.T) {
	bubble(t, func(f *fixture) {
		family := func(c *semaphore.Config) { c.Limit, c.Total = 1000, 2000 }
		dead, wire := f.open(family, ttl(time.Second))
		s, _ := f.open(family)
		defer release(f, f.take(s, "other", 1)) // it keeps the family's keys alive
		redistest.Must(dead.AcquireN(f.Context(), "k", 1000))(f)
		wire.Cut()
		time.Sleep(1050 * time.Millisecond)
		l := redistest.Must(s.TryAcquireN(f.Context(), "k", 1000))(f)
		release(f, l)
	})
}

// A vainScene is a family with a total of 10 in which modest tenants take one permit at a time, while others ask for
// more than is free. A permit is held all the time, so none of them can be granted all.
type vainScene struct {
	f   *fixture
	ctx context.Context // ends with the scene
	wg  sync.WaitGroup

	mu      sync.Mutex
	turns   map[string]int           // by the name of tenants, without their number
	longest map[string]time.Duration // wait
}

// open makes a handle, as a process of its own has.
func (v *vainScene) open() *semaphore.Semaphore {
	s, _ := v.f.open(limit(10), total(10))
	return s
}

// repeat runs fn over and over until the scene ends.
func (v *vainScene) repeat(fn func(i int)) {
	v.wg.Go(func() {
		for i := 0; v.ctx.Err() == nil; i++ {
			fn(i)
		}
	})
}

// take waits for n permits of key for that long at most, and keeps them for a while.
func (v *vainScene) take(s *semaphore.Semaphore, key string, n int, wait, hold time.Duration) {
	ctx, cancel := context.WithTimeout(v.ctx, wait)
	defer cancel()
	began := time.Now()
	l, err := s.AcquireN(ctx, key, n)
	waited := time.Since(began)
	name := strings.TrimRight(key, "0123456789")
	v.mu.Lock()
	v.longest[name] = max(v.longest[name], waited)
	if err == nil {
		v.turns[name]++
	}
	v.mu.Unlock()
	if err == nil {
		time.Sleep(hold)
		_ = l.Release()
	}
}

// runVain runs a scene with an attack.
func runVain(f *fixture, lasts time.Duration, attack func(v *vainScene)) *vainScene {
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	v := &vainScene{f: f, ctx: ctx, turns: map[string]int{}, longest: map[string]time.Duration{}}
	defer release(f, f.take(v.open(), "long", 1))
	attack(v)
	s := v.open()
	for i := range 4 {
		v.repeat(func(int) {
			v.take(s, fmt.Sprint("modest", i), 1, time.Minute, modestHold)
			time.Sleep(modestPause)
		})
	}
	v.wg.Wait()
	return v
}

const (
	givesUp     = 900 * time.Millisecond
	modestHold  = 100 * time.Millisecond
	modestPause = 20 * time.Millisecond
)

// vainAttacks are ways to stop a family by asking for more than is free.
var vainAttacks = map[string]func(v *vainScene){
	"one tenant that gives up in time": func(v *vainScene) { v.greedy(2, "greedy", givesUp) },
	"one tenant that never gives up":   func(v *vainScene) { v.greedy(2, "greedy", time.Minute) },
	"many tenants":                     func(v *vainScene) { v.greedyTenants(givesUp) },
	"many tenants that never give up":  func(v *vainScene) { v.greedyTenants(time.Minute) },
	"new keys, each before the last": func(v *vainScene) {
		s := v.open()
		for j := range 2 {
			v.repeat(func(i int) { v.take(s, fmt.Sprintf("a%04d", 9999-2*i-j), 10, 200*time.Millisecond, 0) })
		}
	},
	"small requests between": func(v *vainScene) {
		s := v.open()
		v.greedy(1, "greedy", givesUp)
		v.repeat(func(int) { v.take(s, "greedy", 1, givesUp, 10*time.Millisecond) })
		v.repeat(func(int) { v.take(s, "greedy2", 9, givesUp/2, 10*time.Millisecond) })
	},
	"a tenant that makes its own room": func(v *vainScene) {
		s := v.open()
		v.repeat(func(int) {
			own, err := s.AcquireN(v.ctx, "greedy", 4)
			if err != nil {
				return
			}
			v.wg.Go(func() {
				time.Sleep(givesUp)
				_ = own.Release()
			})
			v.take(s, "greedy", 9, 10*time.Second, time.Millisecond)
		})
	},
}

// greedy has n callers ask for all permits, over and over, each time for that long.
func (v *vainScene) greedy(n int, key string, wait time.Duration) {
	s := v.open()
	for range n {
		v.repeat(func(int) { v.take(s, key, 10, wait, 0) })
	}
}

// greedyTenants has 20 tenants do so, of which each gives up a bit later than the one before.
func (v *vainScene) greedyTenants(wait time.Duration) {
	for i := range 20 {
		v.greedy(1, fmt.Sprintf("greedy%02d", i), wait+time.Duration(i)*time.Millisecond)
	}
}

// A tenant that asks for more than is free does not stop the others, however it goes about it: neither modest
// ones, nor an honest one with a heavy request.
func TestRequestsInVainStopNobody(t *testing.T) {
	const lasts = 6 * time.Second
	calm := 4 * int(lasts/(modestHold+modestPause)) // in a bubble nothing else takes time
	honest := func(v *vainScene) {
		s := v.open()
		v.repeat(func(int) {
			v.take(s, "honest", 7, time.Minute, 20*time.Millisecond)
			time.Sleep(20 * time.Millisecond)
		})
	}
	for name, attack := range vainAttacks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				v := runVain(f, lasts, attack)
				redistest.Check(t, v.turns["modest"] >= calm/4, "modest tenants had %d turns; without the attack %d", v.turns["modest"], calm)
				redistest.AtMost(t, v.longest["modest"], 3*time.Second, "a modest tenant waited %v")
			})
		})
	}
	for _, name := range []string{"one tenant that gives up in time", "many tenants", "many tenants that never give up"} {
		t.Run("an honest one beside "+name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				v := runVain(f, lasts, func(v *vainScene) {
					honest(v)
					vainAttacks[name](v)
				})
				redistest.AtLeast(t, v.turns["honest"], 4, "the honest tenant had %d turns")
			})
		})
	}
}
