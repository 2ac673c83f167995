package quorum

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestDoOnceRunsOnce(t *testing.T) {
	each(t, 3, func(f *fleet) {
		a, b := f.open(), f.open()
		runs := 0
		once := func(m *mutex.Mutex, slot string, fail error) (bool, error) {
			return m.DoOnce(f.Context(), "job", slot, time.Minute, func(context.Context, uint64) error { runs++; return fail })
		}
		failed := errors.New("no")
		ran, err := once(a, "1", failed)
		redistest.Check(f, ran && errors.Is(err, failed), "a run that fails: %v, %v", ran, err)
		redistest.Gives(once(b, "1", nil))(f, true)
		redistest.Gives(once(a, "1", nil))(f, false)
		redistest.Gives(once(a, "2", nil))(f, true)
		redistest.Check(f, runs == 3, "%d runs", runs)
		redistest.WantErr(f, redistest.ErrorOf(once(a, "", nil)), leasehold.ErrInvalid)
	})
}

// A run is revoked by a majority, and does not hear of it. The server that is left completes it: its caller is told that
// the slot may be complete, as it is for those that come later.
func TestRunThatAMinorityCompletes(t *testing.T) {
	f := embedded(t, 3)
	clients := f.clients()
	clients[0].AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if harness.CommandName(cmds[0]) == "quorum revoke" {
			return net.ErrClosed
		}
		return send()
	}))
	m, operator := f.open(), redistest.Must(mutex.NewQuorum(clients, mutex.Config{Name: f.family}))(t)
	once := func(fn func(context.Context, uint64) error) (bool, error) {
		return m.DoOnce(t.Context(), "job", "1", time.Minute, fn)
	}
	_, err := once(func(ctx context.Context, _ uint64) error {
		redistest.Eventually(t, "the vote of the first server", func() bool { return f.direct(0).Exists(ctx, f.part("job", "holders")).Val() == 1 })
		id := redistest.Must(operator.Inspect(ctx, "job"))(t).Holder.ID
		redistest.NoError(t, operator.Revoke(ctx, "job", id, "a test"))
		return nil
	})
	redistest.WantErr(t, err, leasehold.ErrRevoked)
	ran, later := once(func(context.Context, uint64) error { return nil })
	redistest.Check(t, later == nil && (ran || errors.Is(err, leasehold.ErrUnavailable)), "a run ended with %v, and the next call with %v, %v", err, ran, later)
	redistest.WantErr(t, operator.Close(t.Context()))
}

// A look that a hook swallowed, or answered with an error that panics, does not say that the slot is open.
func TestDoOnceWhoseLooksAreSwallowed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{"swallowed": nil, "a nil pointer": (*net.OpError)(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, m := hooked(t, func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if cmds[0].Name() == "exists" {
					return end
				}
				return send()
			})
			ran, err := m.DoOnce(f.Context(), "job", "1", time.Minute, func(context.Context, uint64) error { return nil })
			redistest.Check(t, !ran && errors.Is(err, leasehold.ErrUnavailable) && (end == nil || strings.Contains(err.Error(), "panicked")), "ran: %v, %v", ran, err)
		})
	}
}

// The look of a DoOnce is a part of its call: it heeds ctx, MaxWait and Close, and the Observer is told how it ended.
func TestLookOfADoOnceEndsAsAWaitDoes(t *testing.T) {
	hangs, end := context.WithCancel(t.Context())
	var looks atomic.Int32
	f, patient := hooked(t, func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if cmds[0].Name() == "exists" && looks.Add(1) > 3 {
			<-hangs.Done()
		}
		return send()
	})
	t.Cleanup(end)
	once := func(ctx context.Context, m *mutex.Mutex) error {
		ran, err := m.DoOnce(ctx, "job", "1", time.Minute, func(context.Context, uint64) error { return nil })
		redistest.Check(f, !ran, "a complete slot ran again")
		return err
	}
	redistest.Gives(f.open().DoOnce(f.Context(), "job", "1", time.Minute, func(context.Context, uint64) error { return nil }))(f, true)
	redistest.WantErr(f, once(f.Context(), patient))
	ended, cancel := context.WithCancel(f.Context())
	cancel()
	redistest.WantErr(f, once(ended, patient), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
	redistest.Expect(f, looks.Load(), 3, "%d looks")
	waiting := harness.Begin(f, func() error { return once(f.Context(), patient) })
	redistest.Eventually(f, "a look that hangs", func() bool { return looks.Load() == 6 })
	closed := harness.Begin(f, func() error { return patient.Close(f.Context()) })
	redistest.WantErr(f, waiting.Failed(), leasehold.ErrClosed)
	redistest.WantErr(f, once(f.Context(), patient), leasehold.ErrClosed)
	end()
	closed.Got()
}

func TestLookOfADoOnceIsToldAndBoundedByMaxWait(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		told := new(harness.Told)
		m := f.open(func(c *mutex.Config) { c.MaxWait, c.Observer = 2*time.Second, told })
		look := func() (bool, error) {
			return m.DoOnce(f.Context(), "job", "1", time.Minute, func(context.Context, uint64) error { return nil })
		}
		redistest.Gives(look())(f, true)
		redistest.Gives(look())(f, false)
		redistest.Expect(f, told.Count(leasehold.EventAcquired, leasehold.OutcomeComplete), 1, "the Observer is told of %d complete runs")
		f.proxies[0].Cut(true, true)
		redistest.Gives(look())(f, false)
		f.proxies[1].Cut(true, true)
		silent := harness.Begin(f, func() error { return redistest.ErrorOf(look()) })
		redistest.WantErr(f, silent.Within(4*time.Second, "the end of MaxWait").Err, leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy))
		redistest.Expect(f, told.Count(leasehold.EventAcquired, leasehold.OutcomeUnavailable), 1, "the Observer is told of %d outages")
		f.proxies[0].Heal()
		f.proxies[1].Heal()
		redistest.Eventually(f, "an answer", func() bool { return redistest.ErrorOf(look()) == nil })
	})
}

// A short absence of a majority ends no DoOnce, as it ends no Lock.
func TestDoOnceOutlastsAnAbsenceOfAMajority(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		m := f.open()
		f.begin(m)
		f.refuse(0, true)
		f.refuse(1, true)
		redistest.WantErr(f, redistest.ErrorOf(m.TryLock(f.Context(), "k")), leasehold.ErrUnavailable)
		once := harness.Start(f, func() (bool, error) {
			return m.DoOnce(f.Context(), "job", "1", time.Minute, func(context.Context, uint64) error { return nil })
		})
		time.Sleep(1500 * time.Millisecond) // go-redis by itself tries for a second
		f.refuse(0, false)
		f.refuse(1, false)
		redistest.Expect(f, once.Got(), true, "the job ran: %v")
	})
}
