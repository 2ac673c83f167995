package multi

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
)

// apart opens two processes, so that the way of the second to its server can fail while that of the first works. Both
// know their server.
func (f *fixture) apart(mod ...func(*mutex.Config)) (well, sick *process) {
	f.Helper()
	well, sick = f.open(mod...), f.open(mod...)
	sick.wire.Patience = 5 * time.Second
	for _, p := range []*process{well, sick} {
		f.release(p.take(p.lockItems("w")...))
	}
	return well, sick
}

// A try at a server that hangs takes no longer than a wait for it, and holds up no wait for another item.
func TestMaxWaitBoundsTries(t *testing.T) {
	bubble(t, func(f *fixture) {
		const maxWait = time.Second
		well, sick := f.apart(func(c *mutex.Config) { c.MaxWait = maxWait })
		for what, want := range map[string]error{"free": leasehold.ErrUnavailable, "held": leasehold.ErrBusy} {
			first := func() error { return nil }
			if what == "held" {
				first = f.open().takeLock("a").Unlock
			}
			sick.wire.Stall()
			began := time.Now()
			_, err := multi.Acquire(f.Context(), multi.Lock(well.locks, "a"), multi.Lock(sick.locks, "b"))
			redistest.WantErr(f, err, want)
			redistest.AtMost(f, time.Since(began), maxWait+100*time.Millisecond, "the first is "+what+": the call took %v")
			sick.wire.Heal()
			redistest.NoError(f, first())
			f.wantFree("a", "b")
		}
	})
}

// MaxWait also bounds how long a call waits until what its handle keeps of the item was given back.
func TestMaxWaitBoundsGivingBack(t *testing.T) {
	bubble(t, func(f *fixture) {
		const maxWait = time.Second
		_, sick := f.apart(func(c *mutex.Config) { c.MaxWait, c.KeepFor = maxWait, time.Second })
		redistest.NoError(f, sick.takeLock("a").Unlock()) // it is kept
		sick.wire.Stall()
		began := time.Now()
		redistest.WantErr(f, redistest.ErrorOf(multi.Acquire(f.Context(), sick.lockItems("a")...)), leasehold.ErrUnavailable)
		redistest.AtMost(f, time.Since(began), maxWait+100*time.Millisecond, "the call took %v")
		sick.wire.Heal()
		f.wantFree("a")
	})
}

// While a call waits for an item of a server that is known to be away, it takes nothing of a server that works.
func TestNothingIsTriedBehindAServerThatIsAway(t *testing.T) {
	bubble(t, func(f *fixture) {
		well, sick := f.apart()
		sick.wire.GoAway(func() { _, _ = sick.locks.TryLock(f.Context(), "w") })
		ctx := f.Within(time.Second)
		w := harness.Begin(f, func() error {
			return redistest.ErrorOf(multi.Acquire(ctx, multi.Lock(sick.locks, "a"), multi.Lock(well.locks, "b")))
		})
		time.Sleep(100 * time.Millisecond)
		redistest.NoError(f, well.takeLock("b").Unlock())
		redistest.WantErr(f, w.Failed(), leasehold.ErrUnavailable)
		sick.wire.Heal()
		f.wantFree("a", "b")
	})
}

type answered string

func (e answered) Error() string { return string(e) }
func (answered) RedisError()     {}

// While the slot of an item moves, or its server starts, a call waits for it as a wait for that item alone would.
func TestTriesOutlastWhatPasses(t *testing.T) {
	bubble(t, func(f *fixture) {
		well, sick := f.apart()
		sick.wire.FailWith(answered("TRYAGAIN Multiple keys request during rehashing of slot"), "enter")
		time.AfterFunc(time.Second, sick.wire.Heal)
		items := []multi.Item{multi.Lock(well.locks, "a"), multi.Lock(sick.locks, "b")}
		redistest.WantErr(f, redistest.ErrorOf(multi.TryAcquire(f.Context(), items...)), leasehold.ErrUnavailable, redistest.Says("/b"))
		f.wantFree("a")
		f.release(redistest.Must(multi.Acquire(f.Context(), items...))(f))
		f.wantFree("a", "b")
	})
}
