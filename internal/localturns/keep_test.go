package localturns

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// newManager makes a manager of locks, or of permits. It is closed when the test ends.
func newManager(t *testing.T, rdb redis.UniversalClient, kind keys.Kind, cfg lease.Config) *lease.Manager {
	cfg.Package, cfg.Family = "mutex", keys.Family{Kind: kind, Name: "n"}
	cfg.Protocol = permits.Family{Family: cfg.Family, Fenced: kind == keys.Mutex, Keeps: cfg.Keeps}
	m := redistest.Must(lease.New(rdb, cfg))(t)
	t.Cleanup(func() { redistest.NoError(t, m.Close(context.Background())) })
	return m
}

// keeping runs fn with a handle that keeps locks for a second, in a bubble.
func keeping(t *testing.T, fn func(t *testing.T, h *Handle, m *lease.Manager)) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Mutex, lease.Config{TTL: 5 * time.Second, Keeps: true})
		h := New(m, Config{KeepFor: time.Second})
		defer h.StopKeeping()
		fn(t, h, m)
	})
}

var attempt = lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}

// turn takes the lock of the key "k" and gives it back.
func turn(t *testing.T, h *Handle) {
	t.Helper()
	taken := redistest.Must(h.Acquire(t.Context(), attempt, new(lease.Lease)))(t)
	time.Sleep(time.Microsecond) // a token is not ahead of the clock
	redistest.WantErr(t, taken.Release("unlock"))
}

// The clock of the moment decides whether a turn begins on a lease that rests, whatever the timer does.
func TestNoTurnBeginsAfterKeepFor(t *testing.T) {
	for rested, begins := range map[time.Duration]bool{time.Second - 1: true, time.Second: false} {
		keeping(t, func(t *testing.T, h *Handle, _ *lease.Manager) {
			turn(t, h)
			synctest.Wait()
			d := h.known("k")
			d.mu.Lock()
			d.kept.timer.Stop()
			d.mu.Unlock()
			time.Sleep(rested)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.kept.heard = time.Now()
			if got := d.lines[0].resume(t.Context(), "lock"); (got != nil) != begins {
				t.Errorf("after %v a turn begins: %v; want %v", rested, got != nil, begins)
			} else if begins {
				got.end(released, leasehold.ErrReleased)
			}
		})
	}
}

// Redis has forgotten two leases that rest. A request that finds one of them ended, before the
// desk was told so, begins its turn on the other: that one goes back after the turn all the same.
func TestLeaseThatWasFoundEndedEndsTheRestOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Semaphore, lease.Config{TTL: 5 * time.Second, Keeps: true})
		h := New(m, Config{KeepFor: time.Second})
		var turns []*Turn
		for range 2 {
			a := attempt
			a.Limit = 2
			turns = append(turns, redistest.Must(h.Acquire(t.Context(), a, new(lease.Lease)))(t))
		}
		for _, one := range turns {
			redistest.WantErr(t, one.Release("release"))
		}
		synctest.Wait()
		server.FlushAll()
		d := h.known("k")
		d.mu.Lock() // LeaseEnded waits for it
		_ = redistest.ErrorOf(turns[1].visit.lease.RenewAndCount(true))
		next := d.lines[0].resume(t.Context(), "acquire")
		d.mu.Unlock()
		redistest.CheckNow(t, next != nil && next.visit == turns[0].visit, "no turn began on the lease that nobody knows to have ended")
		synctest.Wait()
		redistest.WantErr(t, next.Release("release"), leasehold.ErrLost)
	})
}

// Close may begin in the moment of an acquisition from memory.
func TestAcquisitionFromMemoryLooksForClose(t *testing.T) {
	keeping(t, func(t *testing.T, h *Handle, m *lease.Manager) {
		turn(t, h)
		synctest.Wait()
		m.Refuse() // what Close begins with; the lease still rests
		redistest.WantErr(t, redistest.ErrorOf(h.Acquire(t.Context(), attempt, new(lease.Lease))), leasehold.ErrClosed)
	})
}

// A process that was not registered at its last enter may have missed a recall: what its earlier
// enters got does not rest any more.
func TestLeasesOfEarlierEntersGoBackIfARecallWasMissed(t *testing.T) {
	d := &desk{h: &Handle{cfg: Config{KeepFor: time.Second}}}
	d.kept.listening = true
	early := time.Now()
	d.kept.heard = early
	v := &visit{line: &line{desk: d}, grant: lease.Grant{Sent: early, Keepable: true}}
	redistest.CheckNow(t, d.mayRest(v, early), "the lease may not rest")
	d.kept.recalledAt = early.Add(time.Millisecond - 1)
	redistest.Check(t, !d.mayRest(v, early), "a lease of an enter that was sent before the recall came may rest")
}

// countingCtx counts the calls of its Value.
type countingCtx struct {
	context.Context
	calls *atomic.Int32
}

func (c countingCtx) Value(key any) any { c.calls.Add(1); return c.Context.Value(key) }

// A recall that comes between the end of a turn and that of its Context does not end the Context:
// that calls the code of the caller's ctx, and the desk is locked.
func TestRecallEndsNoContext(t *testing.T) {
	keeping(t, func(t *testing.T, h *Handle, _ *lease.Manager) {
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := new(atomic.Int32)
		taken := redistest.Must(h.Acquire(countingCtx{parent, calls}, attempt, new(lease.Lease)))(t)
		ctx := taken.Context()
		d := h.known("k")
		d.mu.Lock()
		taken.end(released, leasehold.ErrReleased)
		rests, before := taken.line.rest(taken.visit), calls.Load()
		d.recall()
		called := calls.Load() > before
		d.mu.Unlock()
		redistest.Check(t, rests && !called && ctx.Err() != nil, "the lease rests: %v; the recall called the ctx: %v; the Context ended with %v", rests, called, ctx.Err())
	})
}
