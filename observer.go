package leasehold

import (
	"context"
	"time"
)

// Observer is told what a handle does: Config.Observer of each package. A nil one
// costs one branch for each event. Package leaseholdotel has one that makes metrics
// and traces of OpenTelemetry.
//
// Observe is called at the event, on the goroutine of the event: the caller's, or
// one that renews leases. It is called for many events at the same time, and under
// locks of the handle. So it must return at once, must not panic, and must not call a
// method of the handle or of one of its leases.
type Observer interface{ Observe(Event) }

// EventKind says which kind of event an [Event] is, and so which of its fields are set.
type EventKind int

// The kinds of events. Type and Family of an [Event] are set for each kind.
const (
	// EventAcquired is the end of an Acquire, TryAcquire, Lock, TryLock or Do's
	// acquisition, or, in a cache, of the wait for a permit of MaxLoads. Outcome is
	// OutcomeGranted, or why there was no grant. Duration is the time that the call
	// took, Waited whether it was queued. Permits and Context are set.
	EventAcquired EventKind = iota + 1

	// EventHoldEnded is the end of a hold, whichever came first: OutcomeReleased,
	// OutcomeClosed, OutcomeLost, OutcomeRevoked or OutcomeMaxHold. Duration is the
	// time since the grant. Each OutcomeGranted of an EventAcquired is followed by
	// exactly one. Permits is set.
	EventHoldEnded

	// EventRenewed is a renewal that has its outcome: OutcomeOK, OutcomeUnavailable,
	// or OutcomeLost where the server has no such lease. For OutcomeOK Duration is the
	// margin: how long the lease would surely have lasted without this renewal. It is
	// 0 where the answer came after that.
	EventRenewed

	// EventLeaseEnded says that a lease, of a load too, ended before it was given back:
	// OutcomeLost, OutcomeRevoked or OutcomeMaxHold.
	EventLeaseEnded

	// EventLateGrant is a grant that came after the call that wanted it had ended, or
	// after its term. It is given back in the background.
	EventLateGrant

	// EventStaleRelease is a Release or an Unlock that found its lease lost, so that
	// the work under it may have run beside that of others.
	EventStaleRelease

	// EventGuardRefused is a guarded write that was refused for its older fencing
	// token. A Guard has no Observer: its caller reports ErrFenced, for example with
	// leaseholdotel.
	EventGuardRefused

	// EventLoadStarted is the start of a loader. Load is set.
	EventLoadStarted

	// EventLoadEnded is the end of a loader: OutcomeOK, OutcomeNotFound, OutcomeError,
	// OutcomePanic (also of runtime.Goexit), OutcomeTimeout (LoadTimeout) or
	// OutcomeCanceled (nobody waits any more, the lease was lost, or the handle was
	// closed). Duration is how long it ran. Load is that of the start.
	EventLoadEnded

	// EventLookup is a key that Do, Fetch or DoMany served: OutcomeHit (also a
	// remembered ErrNotFound), OutcomeStale, OutcomeShared or OutcomeLoaded. A call
	// that fails is none.
	EventLookup

	// EventPublished is the outcome of one publication of a load's result: OutcomeOK;
	// OutcomeInvalidated, where it was handed to the waiters and not stored;
	// OutcomeLost, where the lease of the load had ended; or OutcomeUnavailable.
	EventPublished

	// EventDecodeFailed is an entry of the cache that is no value of the group. It
	// counts as absent.
	EventDecodeFailed

	// EventInvalidated is a key that Invalidate was called for: OutcomeOK or
	// OutcomeUnavailable.
	EventInvalidated

	// EventUnavailable says that Redis, or one server of a Cluster, went out of reach
	// of this handle, EventAvailable that it answers again.
	EventUnavailable
	EventAvailable
)

// The outcomes of events. They are few and short, and contain no key.
const (
	OutcomeOK          = "ok"
	OutcomeGranted     = "granted"
	OutcomeBusy        = "busy"
	OutcomeQueueFull   = "queue_full"
	OutcomeCanceled    = "canceled" // ctx ended
	OutcomeInvalid     = "invalid"
	OutcomeUnavailable = "unavailable"
	OutcomeClosed      = "closed"
	OutcomeReleased    = "released"
	OutcomeLost        = "lost"
	OutcomeRevoked     = "revoked"
	OutcomeMaxHold     = "max_hold"
	OutcomeHit         = "hit"
	OutcomeStale       = "stale"
	OutcomeShared      = "shared"
	OutcomeLoaded      = "loaded"
	OutcomeInvalidated = "invalidated"
	OutcomeNotFound    = "not_found"
	OutcomeError       = "error"
	OutcomePanic       = "panic"
	OutcomeTimeout     = "timeout"
)

// Event is one event of a handle. It names no key, no owner and no value.
type Event struct {
	Kind     EventKind
	Type     string          // the package: "semaphore", "mutex" or "singleflight"
	Family   string          // Config.Name
	Outcome  string          // one of the constants; "" where the kind has none
	Context  context.Context // EventAcquired: the ctx of the call; else nil
	Duration time.Duration   // until now; what of, the kind says
	Permits  int             // EventAcquired, EventHoldEnded
	Waited   bool            // EventAcquired: it was queued
	Load     *Load           // EventLoadStarted, EventLoadEnded
}

// Load is one call of a loader. Its start and its end have the same.
type Load struct {
	// Context is the ctx that the loader gets. At the start an Observer may replace
	// it with one that is derived from it, with a span for example, below which the
	// loader's own spans then lie. At the end it is what the Observer left.
	Context context.Context
	// Keys is how many keys the loader is to load.
	Keys int
}
