package mutex

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// MaxHold bounds each turn, not the lease that the turns share.
func TestMaxHoldBoundsEachTurn(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, _ := f.open(localFor(time.Second), func(c *mutex.Config) { c.MaxHold = 200 * time.Millisecond })
		l := f.take(m, "k")
		id := l.ID()
		for range 4 {
			w := line(f.Context(), m, f)
			time.Sleep(150 * time.Millisecond)
			err := l.Context().Err()
			redistest.CheckNow(f, err == nil, "a turn within MaxHold ended: %v", context.Cause(l.Context()))
			unlock(f, l)
			if l = w.Got(); l.ID() != id {
				f.Fatal("the lease was not passed on")
			}
		}
		w := line(f.Context(), m, f)
		time.Sleep(250 * time.Millisecond)
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrMaxHold, leasehold.ErrLost)
		next := w.Got()
		redistest.CheckNow(f, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
		redistest.WantErr(f, l.Unlock(), leasehold.ErrMaxHold)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrReleased)
		redistest.Require(f, next.Context().Err(), nil, "the turn of another ended: %v")
		unlock(f, next)
	})
}

// Deadline is never after MaxHold, which frees the lock. The Observer and the log are told of a turn that MaxHold ends
// as of a lease that it ends, and an Extend that it overtakes tells of MaxHold, and not of a release.
func TestMaxHoldEndsALock(t *testing.T) {
	withAndWithoutLocalFor(t, func(f *fixture, most time.Duration) {
		var events harness.Told
		var log strings.Builder
		m, wire := f.open(ttl(30*time.Second), localFor(most), func(c *mutex.Config) {
			c.MaxHold, c.Observer, c.Logger = 40*time.Second, &events, slog.New(slog.NewTextHandler(&log, nil))
		})
		began := time.Now()
		l := f.take(m, "k")
		for ; l.Context().Err() == nil; time.Sleep(time.Second) {
			at := l.Deadline().Sub(began)
			redistest.CheckNow(f, at <= 40*time.Second, "after %v the deadline is %v after the grant", time.Since(began), at)
		}
		redistest.Expect(f, l.Deadline().Sub(began), 40*time.Second, "at the end the deadline is %v after the grant")
		redistest.WantErr(f, l.Unlock(), leasehold.ErrMaxHold)
		synctest.Wait() // for the log
		for what, n := range map[string]int{
			"ends of a hold":  events.Count(leasehold.EventHoldEnded, leasehold.OutcomeMaxHold),
			"ends of a lease": events.Count(leasehold.EventLeaseEnded, leasehold.OutcomeMaxHold),
			"stale releases":  events.Count(leasehold.EventStaleRelease, ""),
			"lines of log":    strings.Count(log.String(), "cause=max_hold"),
		} {
			redistest.Check(f, n == 1, "%d %s, want 1; log %q", n, what, log.String())
		}
		l = f.take(m, "k")
		time.Sleep(39900 * time.Millisecond)
		letGo := wire.StallReplies("renew")
		extended := harness.Start(f.T, func() (struct{}, error) { return struct{}{}, l.Extend(f.Context(), time.Minute) })
		time.Sleep(200 * time.Millisecond)
		letGo()
		redistest.WantErr(f, extended.Failed(), leasehold.ErrMaxHold)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrMaxHold)
	})
}
