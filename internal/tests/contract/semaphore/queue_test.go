package semaphore

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/semaphore"
)

// A waiter asks by itself now and then: it gets its permit although the message
// about it was lost, or was published before its subscription stood.
func TestMissedMessageIsAskedFor(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		holder, _ := f.open()
		late := redistest.NewProxy(f.T, f.Addr)
		p.DropMessages(true)
		subscribe := late.HoldRequest(redistest.Named("subscribe"), 1)
		defer subscribe.Release()
		deaf, unborn := f.take(holder, "deaf", 1), f.take(holder, "unborn", 1)
		w1 := f.wait(f.Context(), f.openVia(p), "deaf", 1)
		w2 := f.wait(f.Context(), f.openVia(late), "unborn", 1)
		subscribe.Wait()
		release(f, deaf)
		release(f, unborn)
		release(f, w1.Got())
		release(f, w2.Got())
	})
}

// Waiters of a handle learn of what was granted before its subscription stood
// when it stands, also those whose own answers come later than that.
func TestGrantBeforeTheSubscriptionStands(t *testing.T) {
	bubble(t, func(f *fixture) {
		holder, _ := f.open(limit(2))
		s, wire := f.open(limit(2))
		release(f, f.take(s, "warm", 1))
		a, b := f.take(holder, "k", 1), f.take(holder, "k", 1)
		subscribe := wire.HoldDials()
		w1 := f.wait(f.Context(), s, "k", 1)
		synctest.Wait() // until its answer has come
		answer := wire.StallReplies(call.ScriptName(luascripts.PermitsEnter()))
		w2 := f.wait(f.Context(), s, "k", 1)
		release(f, a)
		release(f, b)
		subscribe()
		l1 := w1.Got()
		answer()
		answered := time.Now()
		l2 := w2.Got()
		redistest.AtMost(f, time.Since(answered), 500*time.Millisecond, "the second waiter heard of its grant %v after its answer")
		release(f, l1)
		release(f, l2)
	})
}

// Leases of different length on one key end each by itself: the short one frees
// its permit, and neither its expiry nor its purge takes the long one along.
func TestTwoTTLsOnOneKey(t *testing.T) {
	each(t, func(f *fixture) {
		long, _ := f.open(limit(2))
		short, wire := f.open(limit(2), ttl(time.Second))
		for _, key := range []string{"long-first", "short-first"} {
			var keep, dies *semaphore.Lease
			if key == "long-first" {
				keep, dies = f.take(long, key, 1), f.take(short, key, 1)
			} else {
				dies, keep = f.take(short, key, 1), f.take(long, key, 1)
			}
			wire.Cut()
			redistest.Get(f, "the short lease to end", dies.Context().Done())
			redistest.Eventually(f, "the short lease's permit", func() bool {
				l, err := long.TryAcquire(f.Context(), key) // purges, too
				if err == nil {
					release(f, l)
				}
				return err == nil
			})
			f.WantHeld(key, 1)
			redistest.AtLeast(f, f.RDB.PTTL(f.Context(), f.Part(key, "holders")).Val(), 15*time.Second, "the key of a lease of 30 s expires in %v")
			release(f, keep)
			wire.Heal()
			redistest.WantErr(f, dies.Release(), leasehold.ErrLost)
		}
	})
}

// A sign of life that fails is repeated soon, also if a newcomer queues meanwhile.
func TestSignOfLifeIsRepeatedBesideANewcomer(t *testing.T) {
	bubble(t, func(f *fixture) {
		holder, _ := f.open()
		s, wire := f.open()
		l := f.take(holder, "k", 1)
		first := f.start(s, "k", 1)
		time.Sleep(time.Second) // it has asked once
		ask, failed := luascripts.PermitsAsk(), make(chan struct{})
		var once sync.Once
		wire.Fail(func(name string) error {
			if name == call.ScriptName(ask) {
				once.Do(func() { close(failed) })
				return harness.ErrCut
			}
			return nil
		})
		<-failed
		wire.Heal()
		asked := wire.Ran(ask)
		second := f.start(s, "k", 1)
		time.Sleep(500 * time.Millisecond)
		redistest.Check(f, wire.Ran(ask) > asked, "nobody asked again within 500 ms")
		release(f, l)
		release(f, first.Got())
		release(f, second.Got())
	})
}

// A call that took long tells little of the server's clock. A grant after it is not taken for as old as that.
func TestSlowCallShortensNoGrant(t *testing.T) {
	bubble(t, func(f *fixture) {
		holder, _ := f.open()
		s, wire := f.open()
		l := f.take(holder, "k", 1)
		w := f.start(s, "k", 1)
		time.Sleep(200 * time.Millisecond) // what it asks at first has its answer
		ask := luascripts.PermitsAsk()
		wire.Stall(call.ScriptName(ask))
		time.Sleep(1600 * time.Millisecond) // a sign of life is under way
		ran := wire.Ran(ask)
		wire.Unstall()
		synctest.Wait() // until it is answered
		redistest.Require(f, wire.Ran(ask)-ran, 1, "%d signs of life were under way")
		release(f, l)
		got := w.Got()
		redistest.AtLeast(f, time.Until(got.Deadline()), 1900*time.Millisecond, "the lease was held for %v more when it was granted for 2 s")
		release(f, got)
	})
}
