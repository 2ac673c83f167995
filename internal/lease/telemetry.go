package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
)

// telemetry reports what a handle does to the Observer and the Logger of its Config. It is nil
// if there is neither, and its methods then do nothing.
type telemetry struct {
	observer leasehold.Observer // nil: none
	logger   *slog.Logger       // nil: none
	typ      string             // the package's name
	family   string
	ownUse   bool // the package reports how its leases are used, so they are not reported as holds
	run      func(func())

	// The servers that are out of reach, by name, each with a key that it had. awayNow is
	// their number, because every answer looks at it.
	awayNow atomic.Int64
	mu      sync.Mutex
	away    map[string]string
}

// newTelemetry returns nil if cfg has neither an Observer nor a Logger. run runs a function in
// the background.
func newTelemetry(cfg Config, run func(func())) *telemetry {
	if cfg.Observer == nil && cfg.Logger == nil {
		return nil
	}
	return &telemetry{
		observer: cfg.Observer, logger: cfg.Logger, typ: cfg.Package, family: cfg.Family.Name, ownUse: cfg.OwnEvents, run: run,
		away: map[string]string{},
	}
}

// observe passes e to the Observer, if there is one.
func (t *telemetry) observe(e leasehold.Event) {
	if t.observer != nil {
		e.Type, e.Family = t.typ, t.family
		t.observer.Observe(e)
	}
}

// Observe adds type and family to an event and passes it to the Observer, if there is one.
func (m *Manager) Observe(e leasehold.Event) {
	if m.events != nil {
		m.events.observe(e)
	}
}

// log writes a line in the background. Its caller may hold locks, and may be the goroutine
// that renews all leases of the handle, which a slow log must not delay.
func (t *telemetry) log(level slog.Level, text string, of ...slog.Attr) {
	if t.logger == nil || !t.logger.Enabled(context.Background(), level) {
		return
	}
	t.run(func() {
		attrs := append([]slog.Attr{slog.String("family", t.family)}, of...)
		t.logger.LogAttrs(context.Background(), level, "leasehold: "+t.typ+": "+text, attrs...)
	})
}

// logged returns how logs name an attempt: by the hash of its key and the start of its ID.
func logged(res Resource, req Request) []slog.Attr {
	sum := sha256.Sum256([]byte(res.Label()))
	id := req.ID()
	return []slog.Attr{
		slog.String("key_hash", hex.EncodeToString(sum[:8])),
		slog.String("id", id[:min(8, len(id))]),
	}
}

// now returns the current time, or the zero time if nobody needs it.
func (t *telemetry) now() time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.Now()
}

// acquired reports the outcome of an acquisition that began at began.
func (t *telemetry) acquired(ctx context.Context, w *waiter, began time.Time, err error) {
	if t == nil || t.ownUse || w.Turns != nil {
		return
	}
	t.observe(leasehold.Event{
		Kind: leasehold.EventAcquired, Outcome: acquireOutcome(ctx, err), Context: ctx,
		Duration: time.Since(began), Permits: w.Permits, Waited: w.ticket != 0,
	})
}

// acquireOutcome returns the outcome for the error of an acquisition. The error of a wait that
// ctx ended may also match ErrBusy or ErrUnavailable.
func acquireOutcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return leasehold.OutcomeGranted
	case errors.Is(err, leasehold.ErrClosed):
		return leasehold.OutcomeClosed
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return leasehold.OutcomeCanceled
	case errors.Is(err, leasehold.ErrQueueFull):
		return leasehold.OutcomeQueueFull
	case errors.Is(err, leasehold.ErrInvalid):
		return leasehold.OutcomeInvalid
	case errors.Is(err, leasehold.ErrRevoked):
		return leasehold.OutcomeRevoked
	case errors.Is(err, leasehold.ErrUnavailable):
		return leasehold.OutcomeUnavailable
	default:
		return leasehold.OutcomeBusy
	}
}

// lateGrant reports a grant that came too late to be used.
func (t *telemetry) lateGrant(res Resource, req Request) {
	if t == nil {
		return
	}
	t.observe(leasehold.Event{Kind: leasehold.EventLateGrant})
	t.log(slog.LevelInfo, "a grant came too late, and is given back", logged(res, req)...)
}

// released reports that the holder or Close gave the lease back.
func (t *telemetry) released(l *Lease, why error) {
	if t == nil {
		return
	}
	outcome := leasehold.OutcomeReleased
	if errors.Is(why, leasehold.ErrClosed) {
		outcome = leasehold.OutcomeClosed
	}
	t.holdEnded(l, outcome)
}

func (t *telemetry) holdEnded(l *Lease, outcome string) {
	if !t.ownUse && l.turns == nil { // otherwise each turn is a hold
		t.observe(leasehold.Event{
			Kind: leasehold.EventHoldEnded, Outcome: outcome, Duration: time.Since(l.since), Permits: l.permits,
		})
	}
}

// ended reports a lease that ended because of why before it was given back. inHand says that
// its holder had not let go of it yet.
func (t *telemetry) ended(l *Lease, why error, inHand bool) {
	if t == nil {
		return
	}
	outcome := leasehold.OutcomeLost
	switch {
	case errors.Is(why, leasehold.ErrRevoked):
		outcome = leasehold.OutcomeRevoked
	case errors.Is(why, leasehold.ErrMaxHold):
		outcome = leasehold.OutcomeMaxHold
	case !errors.Is(why, leasehold.ErrLost):
		t.released(l, why) // its renewal gave it back on purpose: see RenewReply.Ended
		return
	}
	t.observe(leasehold.Event{Kind: leasehold.EventLeaseEnded, Outcome: outcome})
	if inHand {
		t.holdEnded(l, outcome)
	}
	t.log(slog.LevelWarn, "a lease ended before it was given back", append(logged(l.res, l.req), slog.String("cause", outcome))...)
}

// staleRelease reports the release of a lease that had been lost.
func (t *telemetry) staleRelease(l *Lease) {
	if t != nil && !t.ownUse {
		t.observe(leasehold.Event{Kind: leasehold.EventStaleRelease})
	}
}

// renewed reports the outcome of a renewal of a lease with this deadline.
func (t *telemetry) renewed(deadline time.Time, r RenewReply, err error) {
	if t == nil {
		return
	}
	e := leasehold.Event{Kind: leasehold.EventRenewed, Outcome: leasehold.OutcomeOK}
	switch {
	case err != nil:
		e.Outcome = leasehold.OutcomeUnavailable
	case r.Ended != nil:
		return // it gave the lease back
	case r.Term == 0:
		e.Outcome = leasehold.OutcomeLost
	default:
		e.Duration = max(0, time.Until(deadline))
	}
	t.observe(e)
}

// reached notes whether the server of res could be reached; err is the outcome of a call.
func (m *Manager) reached(res Resource, err error) {
	if m.events != nil {
		m.Reached(res.FirstKey(), err)
	}
}

// Reached notes whether the server that has a Redis key could be reached; err is the outcome
// of a call. The first call that could not reach it is an event, and so is the first later
// call that could.
func (m *Manager) Reached(key string, err error) {
	t := m.events
	if t == nil || (err == nil && t.awayNow.Load() == 0) {
		return
	}
	node := m.client.Node(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case call.OutOfReach(err):
		if _, known := t.away[node]; !known {
			t.away[node] = key
			t.awayNow.Add(1)
			t.observe(leasehold.Event{Kind: leasehold.EventUnavailable})
			t.log(slog.LevelWarn, "redis is out of reach")
		}
	case err == nil:
		for name, had := range t.away {
			// After a failover the key is on a server with another name.
			if m.client.Node(had) == node {
				delete(t.away, name)
				t.awayNow.Add(-1)
				t.observe(leasehold.Event{Kind: leasehold.EventAvailable})
				t.log(slog.LevelInfo, "redis is back")
			}
		}
	}
}
