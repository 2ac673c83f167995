package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/gocronlock"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newMutex(t testing.TB, rdb redis.UniversalClient, family string) *mutex.Mutex {
	t.Helper()
	return captest.Mutex(t, rdb, mutex.Config{Name: family})
}

// shifted is a clock that goes wrong by some time.
type shifted struct {
	clockwork.Clock
	by time.Duration
}

func (c shifted) Now() time.Time                  { return c.Clock.Now().Add(c.by) }
func (c shifted) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c shifted) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }
func newClock(by time.Duration) shifted           { return shifted{clockwork.NewRealClock(), by} }
func (c shifted) next(period time.Duration) time.Time {
	return c.Now().Add(2 * period).Truncate(period)
}

// startJob starts a scheduler by that clock with one job, which strikes at multiples of period.
func startJob(t testing.TB, clock shifted, period time.Duration, task gocron.Task, opts ...gocron.JobOption) {
	t.Helper()
	s := redistest.Must(gocron.NewScheduler(gocron.WithClock(clock)))(t)
	t.Cleanup(func() { _ = s.Shutdown() })
	opts = append(opts, gocron.WithStartAt(gocron.WithStartDateTime(clock.next(period))))
	redistest.Must(s.NewJob(gocron.DurationJob(period), task, opts...))(t)
	s.Start()
}

// ticks counts the runs by slot.
type ticks struct {
	mu     sync.Mutex
	runs   map[string]int
	enough chan struct{}
	want   int
}

func newTicks(want int) *ticks {
	return &ticks{runs: make(map[string]int), enough: make(chan struct{}), want: want}
}

func (ts *ticks) add(slot string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.runs[slot]++
	if ts.runs[slot] == 1 && len(ts.runs) == ts.want {
		close(ts.enough)
	}
}

// check waits for the ticks. Each one must have run once, and none between them be left out, unless the machine was
// late: a host that comes to a tick after the next one, or after its wait, leaves it out.
func (ts *ticks) check(t *testing.T, period time.Duration) {
	t.Helper()
	began := time.Now()
	select {
	case <-ts.enough:
	case <-time.After(60 * time.Second):
		t.Fatal("the ticks do not come")
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var slots []time.Time
	for slot, n := range ts.runs {
		redistest.Check(t, n == 1, "tick %s ran %d times", slot, n)
		at := redistest.Must(time.Parse(time.RFC3339Nano, slot))(t)
		slots = append(slots, at)
	}
	slices.SortFunc(slots, time.Time.Compare)
	missed := 0
	for i := range slots[1:] {
		missed += int(slots[i+1].Sub(slots[i])/period) - 1
	}
	redistest.AtMost(t, missed, int(2*redistest.Late(began)/period), "%d ticks were left out, of %d", missed, len(slots))
}

func onlyTick(time.Time) string { return "the only tick" }

// However the clocks of three hosts differ, each tick runs once.
func TestEachTickRunsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		period time.Duration
		shifts []time.Duration
		wait   time.Duration
	}{
		"less than a tick":   {50 * time.Millisecond, []time.Duration{0, 13 * time.Millisecond, -19 * time.Millisecond}, 0},
		"a few ticks":        {50 * time.Millisecond, []time.Duration{0, 213 * time.Millisecond, -134 * time.Millisecond}, time.Second},
		"3 s, which is many": {50 * time.Millisecond, []time.Duration{0, 3 * time.Second, -3 * time.Second}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Shared(t, redistest.Newest(t)).Client()
			// Each of 200 ticks comes to all three hosts: before and after these, to fewer.
			spread := int((slices.Max(c.shifts) - slices.Min(c.shifts)) / c.period)
			family, all := redistest.Name(t), newTicks(200+2*spread)
			for _, shift := range c.shifts {
				clock := newClock(shift)
				cfg := gocronlock.Config{Slot: gocronlock.Every(c.period), Now: clock.Now, Wait: c.wait}
				task, err := gocronlock.Task(newMutex(t, rdb, family), "job", cfg, func(ctx context.Context, _ uint64) error {
					all.add(gocronlock.SlotOf(ctx))
					return nil
				})
				redistest.WantErr(t, err)
				startJob(t, clock, c.period, task)
			}
			all.check(t, c.period)
		})
	}
}

// strikes has a job strike every 20 ms, and returns the errors that the listeners of its scheduler are told.
func strikes(t testing.TB, m *mutex.Mutex, cfg gocronlock.Config, fn func(ctx context.Context, token uint64) error) <-chan error {
	t.Helper()
	failed := make(chan error, 100)
	startJob(t, newClock(0), 20*time.Millisecond, redistest.Must(gocronlock.Task(m, "job", cfg, fn))(t), gocron.WithEventListeners(
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
	return failed
}

func TestListenersAreToldWhyAJobFailed(t *testing.T) {
	busy := func(context.Context, uint64) error { return fmt.Errorf("no permit to export: %w", leasehold.ErrBusy) }
	never := func(ctx context.Context, _ uint64) error { return errors.New("it ran for " + gocronlock.SlotOf(ctx)) }
	for about, c := range map[string]struct {
		cfg  gocronlock.Config
		fn   func(ctx context.Context, token uint64) error
		want []error
	}{
		"it found no permit of its own": {gocronlock.Config{Slot: onlyTick}, busy, []error{leasehold.ErrBusy}},
		"the same, after a wait":        {gocronlock.Config{Slot: onlyTick, Wait: redistest.Soon}, busy, []error{leasehold.ErrBusy}},
		// An outage, and not a ctx that somebody cancelled.
		"Redis could not be asked in time": {gocronlock.Config{Slot: onlyTick, Wait: 1}, never, []error{leasehold.ErrUnavailable, redistest.Says("no answer within 1ns")}},
		// Each host would have ticks of its own, and run all of them.
		"there is no period":       {gocronlock.Config{Slot: gocronlock.Every(0)}, never, []error{leasehold.ErrInvalid}},
		"the period is below zero": {gocronlock.Config{Slot: gocronlock.Every(-time.Hour)}, never, []error{leasehold.ErrInvalid}},
	} {
		t.Run(about, func(t *testing.T) {
			failed := strikes(t, newMutex(t, redistest.MiniClient(t), redistest.Name(t)), c.cfg, c.fn)
			redistest.WantErr(t, redistest.Get(t, "the error", failed), c.want...)
		})
	}
}

// A tick whose run failed stays open for the next strike, and one that another process has completed is no error of
// gocron's.
func TestFailedTickStaysOpen(t *testing.T) {
	rdb, family, ran := redistest.MiniClient(t), redistest.Name(t), make(chan int, 100)
	host := func() <-chan error {
		return strikes(t, newMutex(t, rdb, family), gocronlock.Config{Slot: onlyTick, Wait: redistest.Soon}, func(context.Context, uint64) error {
			if ran <- 1; len(ran) == 1 {
				return errors.New("the first run fails")
			}
			return nil
		})
	}
	first := host()
	redistest.WantText(t, redistest.Get(t, "the failure", first), "the first run fails")
	redistest.Eventually(t, "the second run", func() bool { return len(ran) == 2 })
	second := host()
	<-time.After(100 * time.Millisecond) // five more strikes of each
	redistest.Check(t, len(ran) == 2 && len(first)+len(second) == 0, "%d runs, %d and %d more errors", len(ran), len(first), len(second))
}

// The bound of the wait is none of the job.
func TestWaitDoesNotCutTheJob(t *testing.T) {
	causes := make(chan error, 100)
	cfg := gocronlock.Config{Slot: onlyTick, Wait: 50 * time.Millisecond}
	strikes(t, newMutex(t, redistest.MiniClient(t), redistest.Name(t)), cfg, func(ctx context.Context, _ uint64) error {
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
		causes <- context.Cause(ctx)
		return nil
	})
	redistest.NoError(t, redistest.Get(t, "the end of the job", causes))
}

// A job ends with its lock, and is told why.
func TestLossEndsTheJob(t *testing.T) {
	m, causes := newMutex(t, redistest.MiniClient(t), redistest.Name(t)), make(chan error, 1)
	var ran atomic.Bool
	failed := strikes(t, m, gocronlock.Config{Slot: onlyTick}, func(ctx context.Context, token uint64) error {
		if ran.Swap(true) {
			return nil // the tick stayed open
		}
		s, err := m.Inspect(ctx, "job")
		if err != nil || s.Holder == nil || s.LastToken != token {
			t.Errorf("%+v, %v; the token is %d", s, err, token)
			return nil
		}
		redistest.NoError(t, m.Revoke(t.Context(), "job", s.Holder.ID, "a test")) // it ends ctx
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	redistest.WantErr(t, redistest.Get(t, "the loss", causes), leasehold.ErrRevoked)
	redistest.WantErr(t, redistest.Get(t, "the error", failed), leasehold.ErrLost)
}

func TestEvery(t *testing.T) {
	at := func(s string) time.Time {
		return redistest.Must(time.Parse(time.RFC3339Nano, s))(t)
	}
	minute := gocronlock.Every(time.Minute)
	for _, early := range []string{"2026-11-23T11:59:59.1Z", "2026-11-23T12:00:00Z", "2026-11-23T12:00:58Z", "2026-11-23T13:00:01+01:00"} {
		redistest.Expect(t, minute(at(early)), "2026-11-23T12:00:00Z", "the slot at %s is %s", early)
	}
}

func TestConfigNamesEveryBadField(t *testing.T) {
	_, err := gocronlock.Task(nil, "", gocronlock.Config{Keep: 1, Wait: -1, MinHold: 1}, nil)
	redistest.WantErr(t, err, leasehold.ErrInvalid)
	redistest.WantText(t, err, "gocronlock", "m is nil", "name has 0 bytes", "Slot is nil", "Keep is 1ns; want at least 1s", "Wait is -1ns", "MinHold is 1ns", "fn is nil")
	_, err = gocronlock.Locker(nil, gocronlock.Config{Wait: 1})
	redistest.WantErr(t, err, leasehold.ErrInvalid)
	redistest.WantText(t, err, "gocronlock", "m is nil", "MinHold is 0s; want at least 1ms", "Wait or Now is set")
}
