package leasehold

import (
	"context"
	"fmt"
	"time"
)

// Observer is told what a handle does. Set it as Config.Observer of each package. A nil
// Observer costs one branch for each event. Package leaseholdotel has an Observer that makes
// OpenTelemetry metrics and traces.
//
// A handle calls Observe on a goroutine of its own, for one event after the other, in their
// order. An Observer of several handles is called by all of them at the same time. A call of
// the handle returns once Observe has returned for the call's events, but it waits for that for
// 100 ms at most. Leases, their ends and Close go on if Observe blocks. Up to 4,096 events then
// wait; further ones are dropped, and their number is logged. A panic is logged once.
type Observer interface{ Observe(Event) }

// EventKind is the kind of an [Event]. It determines which fields of the Event are set.
type EventKind int

// The kinds of events. The Type and Family of an [Event] are always set.
const (
	// EventAcquired is the end of an acquisition by Acquire, Lock, their tries, Do, DoOnce or
	// Lead, and in a cache of the wait for a permit of MaxLoads. Outcome is OutcomeGranted,
	// OutcomeComplete if DoOnce had nothing to do, or says why there was no grant. Duration is
	// the time that the call took. Waited says whether it was queued. Permits and Context are
	// set. A call that ends before Redis is asked (a bad argument, an ended ctx, a closed handle)
	// may send none.
	EventAcquired EventKind = iota + 1

	// EventHoldEnded is the end of a hold. Outcome says what ended it first: OutcomeReleased,
	// OutcomeClosed, OutcomeLost, OutcomeRevoked or OutcomeMaxHold. Duration is the time since
	// the grant. Each EventAcquired with OutcomeGranted is followed by exactly one
	// EventHoldEnded. Permits is set.
	EventHoldEnded

	// EventRenewed is the outcome of a renewal: OutcomeOK, OutcomeUnavailable, or OutcomeLost
	// if the server has no such lease. With OutcomeOK, Duration is the margin: how long the
	// lease would surely have lasted without this renewal. Duration is 0 if the answer came
	// after that time.
	EventRenewed

	// EventLeaseEnded says that a lease ended before it was given back: OutcomeLost,
	// OutcomeRevoked or OutcomeMaxHold. It is also sent for the lease of a load.
	EventLeaseEnded

	// EventLateGrant is a grant that came too late: the call that wanted it had ended, or the
	// term of the grant was over. The grant is given back in the background.
	EventLateGrant

	// EventStaleRelease says that a Release or an Unlock found its lease lost. The work under
	// that lease may have run at the same time as the work of another holder.
	EventStaleRelease

	// EventGuardRefused is a guarded write that was refused because a newer fencing token had
	// been accepted. Key is set. It is also sent if the caller's ctx ended before the answer.
	EventGuardRefused

	// EventLoadStarted is the start of a loader. Load is set.
	EventLoadStarted

	// EventLoadEnded is the end of a loader: OutcomeOK, OutcomeNotFound, OutcomeError,
	// OutcomePanic (also for runtime.Goexit), OutcomeTimeout (LoadTimeout) or OutcomeCanceled
	// (no caller waits any more, the lease was lost, or the handle was closed). Duration is
	// how long the loader ran. Load is the same as at the start.
	EventLoadEnded

	// EventLookup is a key that Do, Fetch or DoMany served: OutcomeHit (also for a remembered
	// ErrNotFound), OutcomeNear (from memory), OutcomeStale, OutcomeShared or OutcomeLoaded.
	// OutcomeUnavailable is a key for which Do, Fetch, DoMany or Peek failed because Redis was
	// away; Duration is then the time that the call took. A call that fails otherwise sends no
	// EventLookup.
	EventLookup

	// EventPublished is the outcome of one publication of a load's result. OutcomeOK: the
	// result was published. OutcomeInvalidated: it was handed to the waiters but not stored.
	// OutcomeLost: the lease of the load had ended. OutcomeUnavailable: Redis did not confirm.
	EventPublished

	// EventDecodeFailed says that an entry of the cache is not a value of the group. The entry
	// counts as absent.
	EventDecodeFailed

	// EventInvalidated is one key that Invalidate or Put was called for: OutcomeOK or
	// OutcomeUnavailable. A call that was ended by its ctx, by Close or by its bound of 6 s sends
	// no EventInvalidated.
	EventInvalidated

	// EventUnavailable says that this handle cannot reach Redis, or one server of a Cluster,
	// any more. EventAvailable says that the server answers again.
	EventUnavailable
	EventAvailable
)

// String returns the name of the kind, in lower case with underscores: "hold_ended".
func (k EventKind) String() string {
	if k < EventAcquired || int(k) > len(eventKinds) {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return eventKinds[k-EventAcquired]
}

var eventKinds = [...]string{
	"acquired", "hold_ended", "renewed", "lease_ended", "late_grant", "stale_release", "guard_refused",
	"load_started", "load_ended", "lookup", "published", "decode_failed", "invalidated", "unavailable", "available",
}

// Outcome says how what an [Event] tells of ended. It is a string, so an Observer can pass it on
// as a label: the outcomes are few and short, and contain no key.
type Outcome = string

// The outcomes of events.
const (
	OutcomeOK          Outcome = "ok"
	OutcomeGranted     Outcome = "granted"
	OutcomeComplete    Outcome = "complete" // DoOnce: there was nothing to do
	OutcomeBusy        Outcome = "busy"
	OutcomeQueueFull   Outcome = "queue_full"
	OutcomeCanceled    Outcome = "canceled" // ctx ended
	OutcomeInvalid     Outcome = "invalid"
	OutcomeUnavailable Outcome = "unavailable"
	OutcomeClosed      Outcome = "closed"
	OutcomeReleased    Outcome = "released"
	OutcomeLost        Outcome = "lost"
	OutcomeRevoked     Outcome = "revoked"
	OutcomeMaxHold     Outcome = "max_hold"
	OutcomeHit         Outcome = "hit"
	OutcomeNear        Outcome = "near"
	OutcomeStale       Outcome = "stale"
	OutcomeShared      Outcome = "shared"
	OutcomeLoaded      Outcome = "loaded"
	OutcomeInvalidated Outcome = "invalidated"
	OutcomeNotFound    Outcome = "not_found"
	OutcomeError       Outcome = "error"
	OutcomePanic       Outcome = "panic"
	OutcomeTimeout     Outcome = "timeout"
)

// Event is one event of a handle. It contains no owner id and no value, and a key only if its
// kind says so.
type Event struct {
	Kind     EventKind
	Type     string          // the package: "semaphore", "mutex" or "singleflight"
	Family   string          // Config.Name
	Outcome  Outcome         // one of the constants; "" if the kind has no outcome
	Context  context.Context // EventAcquired: the ctx of the call; else nil
	Duration time.Duration   // the time until now, from a start that depends on the kind
	Permits  int             // EventAcquired, EventHoldEnded
	Waited   bool            // EventAcquired: the request was queued
	Kept     bool            // EventAcquired: a lease that the process kept was granted, without a call
	Load     *Load           // EventLoadStarted, EventLoadEnded
	Key      string          // EventGuardRefused: as errors show it, so hashed with HashKeys
}

// Load is one call of a loader. The events of its start and its end have the same Load.
type Load struct {
	// Context is the ctx that the loader gets. At the start an Observer may replace it with a
	// ctx derived from it, for example one with a span, so that the loader's own spans become
	// children of that span. At the end Context is as the Observer left it.
	Context context.Context
	// Keys is the number of keys that the loader is to load.
	Keys int
}
