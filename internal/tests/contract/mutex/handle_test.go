package mutex

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// The fields that a Config has in common with a semaphore's are in the tests of that.
func TestMutexNewNamesEveryBadField(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	m, err := mutex.New(rdb, mutex.Config{TTL: time.Millisecond, MaxHold: -1, MaxWaiters: -2, Prefix: "}"})
	redistest.WantErr(t, err, leasehold.ErrInvalid, redistest.Says("leasehold: mutex: ", "Name", "TTL", "MaxHold", "MaxWaiters", "Prefix"))
	redistest.Check(t, m == nil && !strings.Contains(err.Error(), "Limit"), "%q names a field that there is not", err)
	redistest.WantText(t, redistest.ErrorOf(mutex.New(rdb, mutex.Config{Name: "n", KeepFor: -1, LocalFor: -1})), "KeepFor is -1ns", "LocalFor is -1ns")
	redistest.NoError(t, redistest.ErrorOf(mutex.New(rdb, mutex.Config{Name: "n", TTL: 100 * time.Millisecond})))
	redistest.WantText(t, redistest.ErrorOf(mutex.New(nil, mutex.Config{Name: "n"})), "rdb")
}

// Inspect shows the holder with its ID, label and time, the last token, and the
// waiters; of a key that nobody holds it shows the token alone.
func TestInspect(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open(func(c *mutex.Config) { c.Label = "here" })
		state := f.inspect(m, "k")
		redistest.CheckNow(f, !state.Held && state.Holder == nil && state.LastToken == 0 && state.Waiting == 0, "%+v", state)
		l := f.take(m, "k")
		state = f.inspect(m, "k")
		redistest.CheckNow(f, state.Held && state.LastToken == l.Token(), "%+v", state)
		h := state.Holder
		if h.ID != l.ID() || h.Label != "here" || h.Permits != 1 || h.Since.UnixMicro() != int64(l.Token()) || h.ExpiresIn <= 0 || h.ExpiresIn > 30*time.Second {
			f.Fatalf("%+v", h)
		}
		redistest.AtLeast(f, f.RDB.PTTL(f.Context(), f.Part("k", "fence")).Val(), time.Hour, "the last token is kept for %v")
		unlock(f, l)
		state = f.inspect(m, "k")
		redistest.CheckNow(f, !state.Held && state.Holder == nil && state.LastToken == l.Token(), "%+v", state)
	})
}

// Do and TryDo run fn under the lock with its token, return what fn did, and join the loss to it. TryDo does not wait.
func TestMutexDo(t *testing.T) {
	some(t, func(f *fixture) {
		for _, turns := range []time.Duration{0, 20 * time.Millisecond} {
			m, wire := f.open(ttl(time.Second), localFor(turns))
			work, last := errors.New("work failed"), uint64(0)
			never := func(context.Context, uint64) error { f.Error("it ran"); return nil }
			for op, do := range map[string]func(context.Context, string, func(context.Context, uint64) error) error{"do": m.Do, "try do": m.TryDo} {
				for _, want := range []error{nil, work} {
					err := do(f.Context(), "k", func(ctx context.Context, token uint64) error {
						f.WantHeld("k", 1)
						redistest.Check(f, token > last && token == f.fence("k") && ctx.Err() == nil, "token %d after %d; ctx %v", token, last, ctx.Err())
						last = token
						redistest.WantErr(f, m.TryDo(ctx, "k", never), leasehold.ErrBusy)
						return want
					})
					redistest.CheckNow(f, errors.Is(err, want) && !errors.Is(err, leasehold.ErrLost), "%s returns %v; want %v", op, err, want)
					f.WantHeld("k", 0)
				}
				redistest.WantText(f, do(f.Context(), "", never), "leasehold: mutex: "+op+" ", "key is empty")
			}
			err := m.Do(f.Context(), "k", func(ctx context.Context, _ uint64) error {
				wire.Cut()
				redistest.Get(f, "the loss", ctx.Done())
				return work
			})
			wire.Heal()
			redistest.WantErr(f, err, leasehold.ErrLost, work)
			redistest.Eventually(f, "the expiry", func() bool { return len(f.Held("k")) == 0 })
		}
	})
}

// A caller that holds the lock would wait for itself.
func TestLockedTwice(t *testing.T) {
	each(t, func(f *fixture) {
		for _, turns := range []time.Duration{0, 20 * time.Millisecond} {
			m, _ := f.open(localFor(turns))
			other, _ := f.open(localFor(turns))
			ctx := f.Within(20 * time.Second)
			never := func(context.Context, uint64) error { f.Error("it ran"); return nil }
			err := m.Do(ctx, "k", func(outer context.Context, _ uint64) error {
				inner := context.WithValue(outer, ctxKey{}, "v")
				redistest.WantErr(f, m.Do(inner, "k", never), leasehold.ErrInvalid, redistest.Says("descends"))
				redistest.WantErr(f, redistest.ErrorOf(m.DoOnce(inner, "k", "slot", time.Minute, never)), leasehold.ErrInvalid)
				redistest.WantErr(f, m.TryDo(inner, "k", never), leasehold.ErrBusy)
				// Through the lock of another key.
				err := m.Do(inner, "other", func(between context.Context, _ uint64) error {
					_, err := m.Lock(between, "k")
					return err
				})
				redistest.WantErr(f, err, leasehold.ErrInvalid)
				redistest.Check(f, outer.Err() == nil, "the lock is lost: %v", context.Cause(outer))
				// Another handle is another caller's.
				short, cancel := context.WithTimeout(inner, 50*time.Millisecond)
				defer cancel()
				redistest.WantErr(f, other.Do(short, "k", never), context.DeadlineExceeded)
				return nil
			})
			redistest.NoError(f, err)
			// The other handle's caller leaves the queue in the background.
			redistest.Eventually(f, "the key to be free", func() bool {
				return f.Queued("k") == 0 && f.RDB.ZCard(f.Context(), f.Part("k", "holders")).Val() == 0
			})
		}
	})
}

// A ctx may outlive the lock that it descends from.
func TestLockedAfterTheLockAbove(t *testing.T) {
	some(t, func(f *fixture) {
		m, _ := f.open()
		var above context.Context
		redistest.WantErr(f, m.Do(f.Context(), "k", func(ctx context.Context, _ uint64) error { above = ctx; return nil }))
		other, _ := f.open()
		held := f.take(other, "k")
		w := f.wait(context.WithoutCancel(above), m, "k")
		unlock(f, held)
		unlock(f, w.Got())
	})
}

type ctxKey struct{}

func logger(lines *strings.Builder) func(*mutex.Config) {
	return func(c *mutex.Config) { c.Logger = slog.New(slog.NewTextHandler(lines, nil)) }
}

// shutDown calls Shutdown in another goroutine of a bubble, and returns once it waits.
func shutDown(f *fixture, ctx context.Context, m *mutex.Mutex) *harness.Call[struct{}] {
	done := harness.Begin(f, func() error { return m.Shutdown(ctx) })
	time.Sleep(time.Millisecond)
	synctest.Wait()
	return done
}

func TestShutdownLetsHoldersFinish(t *testing.T) {
	withAndWithoutLocalFor(t, func(f *fixture, most time.Duration) {
		m, _ := f.open(ttl(time.Second), localFor(most))
		other, _ := f.open()
		held, theirs := f.take(m, "k"), f.take(other, "theirs")
		mine := f.start(f.Context(), m, "k")
		others := f.wait(f.Context(), m, "theirs")
		time.Sleep(time.Second)
		done := shutDown(f, f.Context(), m)
		for _, w := range []*waiting{mine, others} {
			redistest.WantErr(f, w.Failed(), leasehold.ErrClosed)
		}
		redistest.WantErr(f, redistest.ErrorOf(m.TryLock(f.Context(), "new")), leasehold.ErrClosed)
		time.Sleep(10 * time.Second) // longer than the TTL: the lease is renewed
		redistest.Expect(f, context.Cause(held.Context()), nil, "the holder's Context has ended: %v")
		redistest.NoError(f, held.Extend(f.Context(), 2*time.Second))
		redistest.CheckNow(f, !done.Ended(), "Shutdown returned %v beside a holder", done.Err)
		f.WantHeld("k", 1)
		unlock(f, held)
		done.Got()
		f.WantHeld("k", 0)
		unlock(f, theirs)
		redistest.NoError(f, m.Shutdown(f.Context())) // a second one does no harm
	})
}

// Shutdown waits for no lock that is lost. When its ctx ends, it is a Close.
func TestShutdownEndsWithALostLockOrItsCtx(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(ttl(3 * time.Second))
		lost := f.take(m, "k")
		done := shutDown(f, f.Context(), m)
		f.Server.FlushAll()
		done.Got()
		redistest.WantErr(f, context.Cause(lost.Context()), leasehold.ErrLost)

		m, _ = f.open()
		held := f.take(m, "k")
		ctx := f.Within(3 * time.Second)
		began := time.Now()
		redistest.WantErr(f, shutDown(f, ctx, m).Failed(), context.DeadlineExceeded)
		redistest.Expect(f, time.Since(began), 3*time.Second, "it took %v")
		redistest.WantErr(f, context.Cause(held.Context()), leasehold.ErrClosed)
		redistest.NoError(f, m.Close(f.Context()))
		f.WantHeld("k", 0)
	})
}

// stuck is an Observer and a slog.Handler that blocks until it is let go.
type stuck struct {
	slog.Handler
	harness.Told
	gate chan struct{}
}

func (s *stuck) Observe(e leasehold.Event) {
	<-s.gate
	s.Told.Observe(e)
}

func (s *stuck) Enabled(context.Context, slog.Level) bool { <-s.gate; return true }

func (s *stuck) Handle(context.Context, slog.Record) error { <-s.gate; return nil }

// An Observer or a Logger that blocks holds up neither the end of a lease, nor other leases, nor a call, nor Close.
func TestObserverAndLoggerThatBlockHoldUpNothing(t *testing.T) {
	for name, set := range map[string]func(c *mutex.Config, s *stuck){
		"Observer": func(c *mutex.Config, s *stuck) { c.Observer = s },
		"Logger":   func(c *mutex.Config, s *stuck) { c.Logger = slog.New(s) },
		"both":     func(c *mutex.Config, s *stuck) { c.Observer, c.Logger = s, slog.New(s) },
	} {
		t.Run(name, func(t *testing.T) {
			withAndWithoutLocalFor(t, func(f *fixture, most time.Duration) {
				s := &stuck{gate: make(chan struct{})}
				m, _ := f.open(ttl(time.Second), localFor(most), func(c *mutex.Config) { set(c, s) })
				began := time.Now()
				gone, kept, released := f.take(m, "gone"), f.take(m, "kept"), f.take(m, "released")
				redistest.AtMost(f, time.Since(began), 300*time.Millisecond, "three acquisitions took %v")
				ended := gone.Context()
				redistest.CheckNow(f, f.Server.Del(f.Part("gone", "holders")), "there is no such key")
				time.Sleep(5 * time.Second)
				redistest.WantErr(f, context.Cause(ended), leasehold.ErrLost)
				redistest.Expect(f, context.Cause(kept.Context()), nil, "another lease ended: %v")
				unlock(f, released)
				began = time.Now()
				harness.Close(f.T, m)
				redistest.AtMost(f, time.Since(began), time.Second, "Close took %v")
				redistest.WantErr(f, context.Cause(kept.Context()), leasehold.ErrClosed)
				close(s.gate)
				synctest.Wait()
			})
		})
	}
}

// An Observer that panics, or ends its goroutine, is told each event once, in order, before the
// call returns, and the Logger is told of the panic once.
func TestObserverThatPanics(t *testing.T) {
	bubble(t, func(f *fixture) {
		var o harness.Told
		var lines strings.Builder
		m, _ := f.open(logger(&lines), observer(harness.ObserverFunc(func(e leasehold.Event) {
			if o.Observe(e); len(o.Events())%2 == 0 {
				runtime.Goexit()
			}
			panic("a bug of the Observer")
		})))
		for i := range 10 {
			unlock(f, f.take(m, "k"))
			redistest.Require(f, len(o.Events()), 2*(i+1), "after %d turns the events told were %d", i+1)
		}
		harness.Close(f.T, m)
		wantPairs(f, o.Events())
		n := strings.Count(lines.String(), "a bug of the Observer")
		redistest.Check(f, n == 1, "the panic was logged %d times:\n%s", n, lines.String())
	})
}

// wantPairs checks that events are of acquisitions and ends of holds in turn.
func wantPairs(f *fixture, told []leasehold.Event) {
	f.Helper()
	for i, e := range told {
		want := []leasehold.EventKind{leasehold.EventAcquired, leasehold.EventHoldEnded}[i%2]
		redistest.CheckNow(f, e.Kind == want, "event %d is of kind %d; want %d", i, e.Kind, want)
	}
}

// Events beyond the bound are dropped, which is logged once the Observer goes on. Those before are kept in order.
func TestObserverThatIsTooSlow(t *testing.T) {
	bubble(t, func(f *fixture) {
		s := &stuck{gate: make(chan struct{})}
		var lines strings.Builder
		m, _ := f.open(observer(s), logger(&lines))
		began := time.Now()
		for range 2100 {
			unlock(f, f.take(m, "k"))
		}
		redistest.AtMost(f, time.Since(began), time.Second, "the turns took %v: the Observer is waited for once")
		close(s.gate)
		synctest.Wait()
		harness.Close(f.T, m)
		told := s.Events()
		redistest.Between(f, len(told), 4096, 4200, "%d events were told")
		wantPairs(f, told)
		redistest.WantText(f, errors.New(lines.String()), "events were dropped", "dropped=")
	})
}
