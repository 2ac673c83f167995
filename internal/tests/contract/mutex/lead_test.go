package mutex

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

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

func TestLeadEnds(t *testing.T) {
	some(t, func(f *fixture) {
		m, _ := f.open()
		oops := errors.New("oops")
		redistest.WantErr(f, m.Lead(f.Context(), "leader", func(context.Context, uint64) error { return oops }), oops)
		f.WantHeld("leader", 0)
		redistest.WantErr(f, m.Lead(f.Context(), "", nothing), leasehold.ErrInvalid)
		terms := make(chan uint64, 8)
		ended := lead(f, f.Context(), m, terms)
		redistest.Get(f, "a leader", terms)
		redistest.NoError(f, m.Close(f.Context()))
		redistest.WantErr(f, ended.Failed(), leasehold.ErrClosed)
	})
}

// A leader whose fn returns at once does not spin.
func TestLeadStartsAtMostOnceASecond(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, wire := f.open()
		ctx, cancel := context.WithTimeout(f.Context(), 4500*time.Millisecond)
		defer cancel()
		runs := 0
		redistest.WantErr(f, m.Lead(ctx, "leader", func(context.Context, uint64) error { runs++; return nil }), context.DeadlineExceeded)
		redistest.Expect(f, runs, 5, "it ran %d times in 4.5 s")
		// While Redis is away the process stands again, ever more slowly.
		ctx, cancel = context.WithTimeout(f.Context(), 20*time.Second)
		defer cancel()
		wire.Cut()
		time.AfterFunc(15*time.Second, wire.Heal)
		runs = 0
		err := m.Lead(ctx, "leader", func(context.Context, uint64) error { runs++; return nil })
		redistest.Check(f, runs != 0, "it did not lead when Redis was back: %v", err)
	})
}

// While the queue is full a process stands again after pauses of 50 ms to 2 s.
func TestLeadPausesAfterAFailure(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open()
		l := f.take(m, "leader")
		w := f.wait(f.Context(), m, "leader")
		unexplained := harness.EndedBadly{Context: f.Context(), Ended: make(chan struct{}), How: func() error { return nil }}
		close(unexplained.Ended)
		for range 5 { // the pauses are drawn
			var at []time.Time // requests were refused
			full, _ := f.open(func(c *mutex.Config) {
				c.MaxWaiters, c.Observer = 1, harness.ObserverFunc(func(e leasehold.Event) {
					if e.Outcome == leasehold.OutcomeQueueFull {
						at = append(at, time.Now())
					}
				})
			})
			ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
			redistest.WantErr(f, full.Lead(ctx, "leader", nothing), context.DeadlineExceeded)
			cancel()
			redistest.Check(f, len(at) > 5, "it stood %d times in 10 s", len(at))
			for i := 1; i < len(at); i++ {
				redistest.Between(f, at[i].Sub(at[i-1]), 50*time.Millisecond, 2*time.Second, "it stood again after %v")
			}
			err := full.Lead(unexplained, "leader", nothing)
			redistest.Check(f, err != nil, "Lead ends without an error") // it would spin
		}
		unlock(f, l)
		unlock(f, w.Got())
	})
}

// Missing rights last until a person gives them: Lead does not try for ever.
func TestLeadEndsWithALastingRefusal(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open()
		f.Cleanup(func() { f.Server.SetError("") })
		f.Server.SetError("NOPERM User default has no permissions to run the 'evalsha' command")
		redistest.WantErr(f, m.Lead(f.Context(), "leader", nothing), leasehold.ErrUnavailable)
	})
}
