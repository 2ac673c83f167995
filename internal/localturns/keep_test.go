package localturns

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// keeping runs fn with a handle that keeps locks for a second, in a bubble.
func keeping(t *testing.T, fn func(t *testing.T, h *Handle, m *lease.Manager)) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		family := keys.Family{Kind: keys.Mutex, Name: "locks"}
		m, err := lease.New(client(), lease.Config{
			Package: "mutex", Family: family, Protocol: permits.Family{Family: family, Fenced: true, Keeps: true}, TTL: 5 * time.Second, Keeps: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		h := New(m, Config{KeepFor: time.Second})
		fn(t, h, m)
		h.StopKeeping()
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// turn takes the lock of the key "k" and gives it back.
func turn(t *testing.T, h *Handle) {
	t.Helper()
	taken, err := h.Acquire(t.Context(), lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}, new(lease.Lease))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Microsecond) // a token is not ahead of the clock
	if err := taken.Release("unlock"); err != nil {
		t.Fatal(err)
	}
}

// The clock of the moment decides whether a turn begins on a lease that rests, whatever the timer
// does.
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
		family := keys.Family{Kind: keys.Semaphore, Name: "permits"}
		m := redistest.Must(lease.New(client(), lease.Config{
			Package: "semaphore", Family: family, Protocol: permits.Family{Family: family, Keeps: true}, TTL: 5 * time.Second, Keeps: true,
		}))(t)
		h := New(m, Config{KeepFor: time.Second})
		var turns []*Turn
		for range 2 {
			a := lease.Attempt{Op: "acquire", Key: "k", Permits: 1, Limit: 2, Wait: true}
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
		if next == nil || next.visit != turns[0].visit {
			t.Fatal("no turn began on the lease that nobody knows to have ended")
		}
		synctest.Wait()
		redistest.WantErr(t, next.Release("release"), leasehold.ErrLost)
		redistest.WantErr(t, m.Close(t.Context()))
	})
}

// Close may begin in the moment of an acquisition from memory.
func TestAcquisitionFromMemoryLooksForClose(t *testing.T) {
	keeping(t, func(t *testing.T, h *Handle, m *lease.Manager) {
		turn(t, h)
		synctest.Wait()
		m.Refuse() // what Close begins with; the lease still rests
		_, err := h.Acquire(t.Context(), lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}, new(lease.Lease))
		if !errors.Is(err, leasehold.ErrClosed) {
			t.Errorf("Acquire: %v; want ErrClosed", err)
		}
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
	if !d.mayRest(v, early) {
		t.Fatal("the lease may not rest")
	}
	d.kept.recalledAt = early.Add(time.Millisecond - 1)
	if d.mayRest(v, early) {
		t.Error("a lease of an enter that was sent before the recall came may rest")
	}
}
