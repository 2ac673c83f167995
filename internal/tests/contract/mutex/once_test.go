package mutex

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// doOnce calls DoOnce in another goroutine.
func (f *fixture) doOnce(m *mutex.Mutex, slot string, fn func(ctx context.Context, token uint64) error) *harness.Call[bool] {
	return harness.Start(f, func() (bool, error) { return m.DoOnce(f.Context(), "job", slot, time.Minute, fn) })
}

func (f *fixture) wantRan(done *harness.Call[bool], want bool) {
	f.Helper()
	got := done.Within(redistest.Soon, "a run")
	redistest.Check(f, got.Value == want && got.Err == nil, "it ran: %t, %v; want %t", got.Value, got.Err, want)
}

// wantFree waits until the lock has been given back.
func (f *fixture) wantFree() {
	f.Helper()
	redistest.Eventually(f, "the lock to be free", func() bool { return f.RDB.ZCard(f.Context(), f.Part("job", "holders")).Val() == 0 })
}

func nothing(context.Context, uint64) error { return nil }

func TestSlotIsRunOnce(t *testing.T) {
	each(t, func(f *fixture) {
		first, _ := f.open()
		second, _ := f.open()
		begun, end := make(chan struct{}), make(chan struct{})
		one := f.doOnce(first, "s", func(ctx context.Context, token uint64) error {
			redistest.Check(f, ctx.Err() == nil && token != 0, "it runs with %v and token %d", ctx.Err(), token)
			close(begun)
			<-end
			return nil
		})
		redistest.Get(f, "the run", begun)
		ran, err := second.TryDoOnce(f.Context(), "job", "s", time.Minute, nothing)
		redistest.Check(f, !ran && errors.Is(err, leasehold.ErrBusy), "TryDoOnce beside it: %t, %v; want ErrBusy", ran, err)
		two := f.doOnce(second, "s", nothing)
		redistest.Eventually(f, "the second caller to queue", func() bool { return f.Queued("job") == 1 })
		close(end)
		f.wantRan(one, true)
		f.wantRan(two, false)
		third, wire := f.open()
		f.wantRan(f.doOnce(third, "s", nothing), false)
		enters, others := wire.Sent("enter once"), wire.Sent("leave", "complete", "is complete")
		if enters > 2 || others > 0 { // the second enter carries the script's text
			f.Errorf("%d enters and %d other calls find that the slot is complete; want one enter", enters, others)
		}
		f.wantFree()
		f.wantRan(f.doOnce(third, "t", nothing), true)
		redistest.Check(f, wire.Sent("is complete") <= 0,
			"a run that did not wait asks whether its slot is complete, although its enter said so")
		f.wantFree()
		left := f.RDB.PTTL(f.Context(), f.Part("job", "done:s")).Val()
		redistest.Check(f, left > 0 && left <= time.Minute, "the completion is remembered for %v; want a minute", left)
	})
}

func TestSlotStaysOpen(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		oops := errors.New("oops")
		for name, fn := range map[string]func(ctx context.Context, token uint64) error{
			"error":  func(context.Context, uint64) error { return oops },
			"goexit": func(context.Context, uint64) error { runtime.Goexit(); return nil },
			"panic":  func(context.Context, uint64) error { panic(oops) },
		} {
			done := harness.Start(f, func() (bool, error) {
				defer func() { _ = recover() }()
				return m.DoOnce(f.Context(), "job", name, time.Minute, fn)
			})
			if r := done.Within(redistest.Soon, name); name == "error" && (!r.Value || !errors.Is(r.Err, oops)) {
				f.Errorf("a failed run: %t, %v; want that it ran, and its error", r.Value, r.Err)
			}
			f.wantRan(f.doOnce(m, name, nothing), true)
		}
		// The lock is taken away.
		lost := f.doOnce(m, "lost", func(ctx context.Context, _ uint64) error {
			f.RDB.Del(ctx, f.Part("job", "holders"))
			return nil
		}).Within(redistest.Soon, "the run that loses its lock")
		redistest.Check(f, lost.Value && errors.Is(lost.Err, leasehold.ErrLost),
			"a run that lost its lock: %t, %v; want ErrLost", lost.Value, lost.Err)
		f.wantRan(f.doOnce(m, "lost", nothing), true)
		// The handle is closed meanwhile.
		other, _ := f.open()
		closed := f.doOnce(other, "closed", func(ctx context.Context, _ uint64) error {
			go func() { _ = other.Close(context.Background()) }()
			<-ctx.Done()
			return nil
		}).Within(redistest.Soon, "the run during Close")
		redistest.Check(f, closed.Value && errors.Is(closed.Err, leasehold.ErrClosed),
			"a run during Close: %t, %v; want ErrClosed", closed.Value, closed.Err)
		f.wantRan(f.doOnce(m, "closed", nothing), true)
	})
}

// A lock that its process believes lost before the server does completes nothing: that process's leave comes when the way is
// free again. Nor does a lock that has expired (TestModelOfPermits).
func TestLostLockCompletesNothing(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, wire := f.open(ttl(500 * time.Millisecond))
		got := f.doOnce(m, "s", func(ctx context.Context, _ uint64) error {
			wire.CutOff("renew")
			<-ctx.Done()
			wire.Heal()
			return nil
		}).Within(redistest.Soon, "the run")
		redistest.Check(f, got.Value && errors.Is(got.Err, leasehold.ErrLost), "%t, %v; want ErrLost", got.Value, got.Err)
		f.wantFree()
		f.wantRan(f.doOnce(m, "s", nothing), true)
	})
}

func TestSlotsAreChecked(t *testing.T) {
	some(t, func(f *fixture) {
		m, wire := f.open(func(c *mutex.Config) { c.HashKeys = true })
		before := wire.Sent()
		for what, call := range map[string]func() (bool, error){
			"slot": func() (bool, error) { return m.DoOnce(f.Context(), "k", "", time.Minute, nothing) },
			"bytes": func() (bool, error) {
				return m.TryDoOnce(f.Context(), "k", strings.Repeat("s", 513), time.Minute, nothing)
			},
			"keep": func() (bool, error) { return m.DoOnce(f.Context(), "k", "s", time.Second-1, nothing) },
			"fn":   func() (bool, error) { return m.DoOnce(f.Context(), "k", "s", time.Second, nil) },
			"key":  func() (bool, error) { return m.DoOnce(f.Context(), "", "s", time.Second, nothing) },
		} {
			ran, err := call()
			redistest.WantErr(f, err, leasehold.ErrInvalid, redistest.Says(what))
			redistest.Check(f, !ran, "it ran although its %s is bad", what)
		}
		redistest.Expect(f, wire.Sent()-before, 0, "%d commands were sent")
		redistest.NoError(f, redistest.ErrorOf(m.DoOnce(f.Context(), "k", "secret", time.Minute, nothing)))
		if all := f.Keys(); slices.ContainsFunc(all, func(key string) bool { return strings.Contains(key, "secret") }) {
			f.Errorf("the slot is seen in %v", all)
		}
	})
}
