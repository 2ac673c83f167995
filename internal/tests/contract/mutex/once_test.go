package mutex

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
		for _, want := range []bool{true, false} {
			ran, err := second.DoOnce(f.Context(), "job", "kept for ever", math.MaxInt64, nothing)
			redistest.Check(f, ran == want && err == nil, "it ran: %t, %v; want %t", ran, err, want)
		}
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

// A run that was completed while the caller waited is not run again, although the caller's ctx ends during the question
// whether it was, and does not say why.
func TestCompleteSlotIsNotRunAsCtxEnds(t *testing.T) {
	bubble(t, func(f *fixture) {
		first, _ := f.open()
		end := make(chan struct{})
		one := f.doOnce(first, "s", func(context.Context, uint64) error { <-end; return nil })
		synctest.Wait()
		second, wire := f.open()
		ctx := harness.EndedBadly{Context: f.Context(), Ended: make(chan struct{}), How: func() error { return nil }}
		two := harness.Start(f, func() (bool, error) { return second.DoOnce(ctx, "job", "s", time.Minute, nothing) })
		synctest.Wait()
		tell := wire.StallReplies("is complete")
		close(end)
		f.wantRan(one, true)
		synctest.Wait()
		close(ctx.Ended)
		r := two.Within(time.Second, "the second caller")
		redistest.Check(f, !r.Value && errors.Is(r.Err, leasehold.ErrUnavailable), "it ran: %v, %v", r.Value, r.Err)
		tell()
	})
}

// A run that fails, does not return, loses its lock, or is under way at Close leaves its slot open.
func TestSlotStaysOpen(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		closes, _ := f.open()
		fails, _ := f.open()
		oops := errors.New("oops")
		for name, c := range map[string]struct {
			m       *mutex.Mutex
			fn      func(ctx context.Context) error
			returns bool
			want    error
		}{
			"error":  {m, func(context.Context) error { return oops }, true, oops},
			"goexit": {m, func(context.Context) error { runtime.Goexit(); return nil }, false, harness.ErrExited},
			"panic":  {m, func(context.Context) error { panic(oops) }, false, nil},
			"lost":   {m, func(ctx context.Context) error { return f.RDB.Del(ctx, f.Part("job", "holders")).Err() }, true, leasehold.ErrLost},
			"closed": {closes, func(ctx context.Context) error {
				go func() { _ = closes.Close(context.Background()) }()
				<-ctx.Done()
				return nil
			}, true, leasehold.ErrClosed},
			"closed, and it fails": {fails, func(ctx context.Context) error {
				go func() { _ = fails.Close(context.Background()) }()
				<-ctx.Done()
				return ctx.Err()
			}, true, leasehold.ErrClosed},
		} {
			r := harness.Start(f, func() (bool, error) {
				defer func() { _ = recover() }()
				return c.m.DoOnce(f.Context(), "job", name, time.Minute, func(ctx context.Context, _ uint64) error { return c.fn(ctx) })
			}).Within(redistest.Soon, name)
			redistest.Check(f, r.Value == c.returns && errors.Is(r.Err, c.want), "%s: it ran: %t, %v; want %v", name, r.Value, r.Err, c.want)
			f.wantRan(f.doOnce(m, name, nothing), true)
		}
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

// After a FLUSHALL a late enter may have got the lock once more, while another process completed the slot. The first
// completion stays, and the other run is told.
func TestCompletionOfAnotherStays(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		done := f.Part("job", "done:s")
		got := f.doOnce(m, "s", func(ctx context.Context, _ uint64) error {
			return f.RDB.Set(ctx, done, "another's", time.Minute).Err()
		}).Within(redistest.Soon, "the run")
		redistest.Check(f, got.Value && errors.Is(got.Err, leasehold.ErrLost), "%t, %v; want ErrLost", got.Value, got.Err)
		redistest.Expect(f, f.RDB.Get(f.Context(), done).Val(), "another's", "it was completed by %s")
		f.wantFree()
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

// lead leads in another goroutine. Each term of it is told to terms; it lasts until the Context of the lock ends.
func lead(f *fixture, ctx context.Context, m *mutex.Mutex, terms chan<- uint64) *harness.Call[struct{}] {
	return harness.Begin(f, func() error {
		return m.Lead(ctx, "leader", func(ctx context.Context, token uint64) error {
			terms <- token
			<-ctx.Done()
			return ctx.Err()
		})
	})
}

func TestLeadersFollowEachOther(t *testing.T) {
	bubble(t, func(f *fixture) {
		short := func(c *mutex.Config) { c.TTL, c.MaxWait = 3*time.Second, 20*time.Millisecond }
		first, _ := f.open(short)
		second, wire := f.open(short)
		one, two := make(chan uint64, 8), make(chan uint64, 8)
		ctx, cancel := context.WithCancel(f.Context())
		oneEnded := lead(f, ctx, first, one)
		token := redistest.Get(f, "the first leader", one)
		twoCtx, twoCancel := context.WithCancel(f.Context())
		twoEnded := lead(f, twoCtx, second, two)
		redistest.Eventually(f, "the second to stand", func() bool { return f.Queued("leader") == 1 })
		time.Sleep(500 * time.Millisecond)  // longer than MaxWait and two pauses, which do not apply
		if n := wire.Sent("enter"); n > 2 { // the second carries the script's text
			f.Errorf("the second has stood %d times", n)
		}
		began := time.Now()
		cancel()
		redistest.WantErr(f, oneEnded.Failed(), context.Canceled)
		next := redistest.Get(f, "the second leader", two)
		redistest.Check(f, next > token, "token %d after %d", next, token)
		redistest.AtMost(f, time.Since(began), time.Second, "the second leads after %v")
		// A lost lock is no failure: the process stands again.
		f.RDB.Del(f.Context(), f.Part("leader", "holders"))
		redistest.Get(f, "the second to lead again", two)
		// Neither is a revocation.
		state, err := second.Inspect(f.Context(), "leader")
		redistest.CheckNow(f, err == nil && state.Holder != nil, "%+v, %v; want a leader", state, err)
		redistest.WantErr(f, second.Revoke(f.Context(), "leader", state.Holder.ID, "test"))
		redistest.Get(f, "the second to lead once more", two)
		twoCancel()
		redistest.WantErr(f, twoEnded.Failed(), context.Canceled)
		f.WantHeld("leader", 0)
	})
}

// Lead ends with an error of fn, a bad key and Close. If fn panics, or ends its goroutine, Lead gives the lock back before
// that goes on.
func TestLeadEnds(t *testing.T) {
	some(t, func(f *fixture) {
		m, _ := f.open()
		oops := errors.New("oops")
		redistest.WantErr(f, m.Lead(f.Context(), "leader", func(context.Context, uint64) error { return oops }), oops)
		f.WantHeld("leader", 0)
		redistest.WantErr(f, m.Lead(f.Context(), "", nothing), leasehold.ErrInvalid)
		for _, ends := range []func(){runtime.Goexit, func() { panic("a bug") }} {
			told := make(chan any)
			go func() {
				defer func() {
					raised := recover()
					f.WantHeld("leader", 0)
					told <- raised
				}()
				_ = m.Lead(f.Context(), "leader", func(context.Context, uint64) error { ends(); return nil })
				f.Error("Lead returned")
			}()
			raised := redistest.Get(f, "the end of Lead", told)
			redistest.Check(f, raised == nil || raised == "a bug", "it raised %v", raised)
		}
		terms := make(chan uint64, 8)
		ended := lead(f, f.Context(), m, terms)
		redistest.Get(f, "a leader", terms)
		redistest.NoError(f, m.Close(f.Context()))
		redistest.WantErr(f, ended.Failed(), leasehold.ErrClosed)
	})
}

// Lead ends with ctx's error, also if a process that stands was refused for another reason as ctx ended.
func TestLeadEndsWithCtxAsItIsRefused(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open()
		l := f.take(m, "leader")
		w := f.wait(f.Context(), m, "leader")
		ctx, cancel := context.WithCancel(f.Context())
		full, _ := f.open(func(c *mutex.Config) { c.MaxWaiters = 1 }, observer(harness.ObserverFunc(func(e leasehold.Event) {
			if e.Outcome == leasehold.OutcomeQueueFull {
				cancel()
			}
		})))
		redistest.WantErr(f, full.Lead(ctx, "leader", nothing), context.Canceled)
		unlock(f, l)
		unlock(f, w.Got())
	})
}

// A leader whose fn returns at once does not spin.
func TestLeadStartsAtMostOnceASecond(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, wire := f.open()
		ctx := f.Within(4500 * time.Millisecond)
		runs := 0
		redistest.WantErr(f, m.Lead(ctx, "leader", func(context.Context, uint64) error { runs++; return nil }), context.DeadlineExceeded)
		redistest.Expect(f, runs, 5, "it ran %d times in 4.5 s")
		// While Redis is away the process stands again, ever more slowly.
		ctx = f.Within(20 * time.Second)
		wire.Cut()
		time.AfterFunc(15*time.Second, wire.Heal)
		runs = 0
		err := m.Lead(ctx, "leader", func(context.Context, uint64) error { runs++; return nil })
		redistest.Check(f, runs != 0, "it did not lead when Redis was back: %v", err)
	})
}

// While the queue is full a process stands again after pauses of 50 ms to 2 s. Missing rights last until a person gives
// them: Lead does not try for ever.
func TestLeadPausesAfterAFailure(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open()
		l := f.take(m, "leader")
		w := f.wait(f.Context(), m, "leader")
		unexplained := harness.EndedBadly{Context: f.Context(), Ended: make(chan struct{}), How: func() error { return nil }}
		close(unexplained.Ended)
		for range 5 { // the pauses are drawn
			var last time.Time // that a request was refused
			times := 0
			full, _ := f.open(func(c *mutex.Config) { c.MaxWaiters = 1 }, observer(harness.ObserverFunc(func(e leasehold.Event) {
				if e.Outcome != leasehold.OutcomeQueueFull {
					return
				}
				if times++; times > 1 {
					redistest.Between(f, time.Since(last), 50*time.Millisecond, 2*time.Second, "it stood again after %v")
				}
				last = time.Now()
			})))
			ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
			redistest.WantErr(f, full.Lead(ctx, "leader", nothing), context.DeadlineExceeded)
			cancel()
			redistest.AtLeast(f, times, 6, "it stood %d times in 10 s")
			err := full.Lead(unexplained, "leader", nothing)
			redistest.Check(f, err != nil, "Lead ends without an error") // it would spin
		}
		unlock(f, l)
		unlock(f, w.Got())
		f.Server.SetError("NOPERM User default has no permissions to run the 'evalsha' command")
		leads := harness.Begin(f, func() error { return m.Lead(f.Context(), "leader", nothing) })
		redistest.WantErr(f, leads.Failed(), leasehold.ErrUnavailable)
		f.Server.SetError("")
	})
}
