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

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

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

// wild is an Observer that notes what it is told, and then panics or ends its goroutine.
type wild struct{ harness.Told }

func (o *wild) Observe(e leasehold.Event) {
	o.Told.Observe(e)
	if len(o.Events())%2 == 0 {
		runtime.Goexit()
	}
	panic("a bug of the Observer")
}

// An Observer that panics, or ends its goroutine, is told each event once, in order, before the
// call returns, and the Logger is told of the panic once.
func TestObserverThatPanics(t *testing.T) {
	bubble(t, func(f *fixture) {
		var o wild
		var lines strings.Builder
		m, _ := f.open(func(c *mutex.Config) { c.Observer, c.Logger = &o, slog.New(slog.NewTextHandler(&lines, nil)) })
		const turns = 10
		for i := range turns {
			l := f.take(m, "k")
			unlock(f, l)
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
		m, _ := f.open(func(c *mutex.Config) { c.Observer, c.Logger = s, slog.New(slog.NewTextHandler(&lines, nil)) })
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
