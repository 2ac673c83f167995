package lease

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/life"
)

// Kept leases: a lease whose holder has let go of it may rest in its process, idle and renewed,
// until somebody asks for it. internal/localturns decides that; this file has what it needs.

// A Keeper keeps leases that nobody uses. Its methods are called on the inbox's goroutine, with
// no lock. Both are hints: everybody who may publish can send the first one.
type Keeper interface {
	// Recalled says that a request found no room for a key (a Resource.FirstKey).
	Recalled(key string)
	// Listens says that recalls of a key are heard from now on. "": of all keys.
	Listens(key string)
}

// SetKeeper sets the Keeper of the handle. It is called before any attempt is made.
func (m *Manager) SetKeeper(k Keeper) { m.keeper = k }

// Listen makes the handle hear recalls of a key, until Unlisten is called. It returns the time
// since which they are heard. A zero time means not yet; the Keeper is told once they are.
func (m *Manager) Listen(key string) (since time.Time) { return m.inbox.Watch(key) }

// Unlisten ends one Listen.
func (m *Manager) Unlisten(key string) { m.inbox.Unwatch(key) }

// HeldFor notes how long a turn on a lease that may be kept has lasted.
func (m *Manager) HeldFor(d time.Duration) { m.holds.add(d) }

// A Grant tells how a lease was granted.
type Grant struct {
	Sent     time.Time // when the enter was sent; zero: the lease was granted by another call
	Keepable bool      // nobody was known to find no room
	Added    bool      // leases of enters that were sent before may have been recalled
}

// Grant returns how the lease was granted. A lease that another call granted is not Keepable:
// it was waited for.
func (l *Lease) Grant() Grant {
	if l.a.kept == nil {
		return Grant{}
	}
	return l.a.kept.grant
}

// kept is what an attempt notes only if kept leases matter to it.
type kept struct {
	grant Grant         // once its own enter was granted
	trip  time.Duration // of the enter that queued it for permits that may be on their way
}

// await returns how long an attempt that does not wait is queued for permits that other
// processes keep: the time that a recall takes, with some time for a busy machine.
func (k *kept) await() time.Duration {
	var trip time.Duration
	if k != nil {
		trip = k.trip
	}
	return min(50*time.Millisecond+4*trip, 250*time.Millisecond)
}

// Rest makes the lease idle, if it is held at the time now. It is renewed as before. If it is
// lost, it is given back, and nobody is told but its Turns.
func (l *Lease) Rest(now time.Time) bool { return l.isHeld(now, (*life.Life).Rest) }

// Resume ends the rest of a lease, if it is held at the time now.
func (l *Lease) Resume(now time.Time) bool { return l.isHeld(now, (*life.Life).Resume) }

// ServeTurns begins the turns of a lease whose attempt was its caller's Own: from now on each turn
// is a hold. It reports whether the lease is held; else the Observer was told that its hold ended.
func (l *Lease) ServeTurns() bool {
	a := l.a
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.turned = a.why == nil
	return a.turned
}

func (l *Lease) isHeld(now time.Time, step func(*life.Life, life.Moment) bool) bool {
	a := l.a
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return step(&a.life, a.m.moment(now))
}
