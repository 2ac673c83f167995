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
	observer *courier[leasehold.Event] // nil: none
	logger   *courier[line]            // nil: none
	typ      string                    // the package's name
	family   string
	ownUse   bool        // the package reports how its leases are used, so they are not reported as holds
	panicked atomic.Bool // that the Observer panicked is logged once
	slow     atomic.Bool // that the TTL is too short for the network is logged once

	// The servers that are out of reach, by name, each with a key that it had. awayNow is
	// their number, because every answer looks at it.
	awayNow atomic.Int64
	mu      sync.Mutex
	away    map[string]string
}

// A line is one line for the Logger.
type line struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// newTelemetry returns nil if cfg has neither an Observer nor a Logger.
func newTelemetry(cfg Config) *telemetry {
	if cfg.Observer == nil && cfg.Logger == nil {
		return nil
	}
	t := &telemetry{typ: cfg.Package, family: cfg.Family.Name, ownUse: cfg.OwnEvents, away: map[string]string{}}
	if cfg.Observer != nil {
		t.observer = &courier[leasehold.Event]{hand: cfg.Observer.Observe, trouble: t.observerInTrouble}
	}
	if cfg.Logger != nil {
		write := func(l line) { cfg.Logger.LogAttrs(context.Background(), l.level, l.text, l.attrs...) }
		t.logger = &courier[line]{hand: write, trouble: func(dropped int, _ any) {
			if dropped > 0 { // nobody can be told of a Logger that panics
				write(t.line(slog.LevelWarn, "the Logger was too slow; lines were dropped", slog.Int("dropped", dropped)))
			}
		}}
	}
	return t
}

func (t *telemetry) observerInTrouble(dropped int, panicked any) {
	switch {
	case dropped > 0:
		t.log(slog.LevelError, "the Observer was too slow; events were dropped", slog.Int("dropped", dropped))
	case !t.panicked.Swap(true):
		t.log(slog.LevelError, "the Observer panicked", slog.Any("panic", panicked))
	}
}

// tripsInTTL is how many round trips a TTL must last at least. A lease is renewed when a third
// of it is over, and the answer must come before its end.
const tripsInTTL = 3

// roundTrip logs once that a round trip took too long for the TTL.
func (t *telemetry) roundTrip(ttl, took time.Duration) {
	if t == nil || took <= ttl/tripsInTTL || t.slow.Swap(true) {
		return
	}
	t.log(slog.LevelWarn, "a round trip took longer than a third of the TTL; leases with so short a TTL will be lost",
		slog.Duration("ttl", ttl), slog.Duration("round_trip", took))
}

// observe passes e to the Observer, if there is one, in the background. Its caller may hold
// locks.
func (t *telemetry) observe(e leasehold.Event) (done <-chan struct{}) {
	if t.observer == nil {
		return nil
	}
	e.Type, e.Family = t.typ, t.family
	return t.observer.put(e)
}

// observed waits until the Observer was told all events so far, if it does not take long. A
// call of the user's ends with it, so that an Observer knows of the call when it has returned.
func (t *telemetry) observed() {
	if t != nil && t.observer != nil {
		t.observer.flush()
	}
}

// Observed is observed, for calls of other packages that end.
func (m *Manager) Observed() { m.events.observed() }

// Observe adds type and family to an event, passes it to the Observer, if there is one, and
// waits until it has the event, if that does not take long. It reports whether it has. Its
// caller must hold no lock.
func (m *Manager) Observe(e leasehold.Event) bool {
	return m.events != nil && m.events.observer != nil && m.events.observer.wait(m.events.observe(e))
}

// log writes a line in the background. Its caller may hold locks.
func (t *telemetry) log(level slog.Level, text string, of ...slog.Attr) {
	if t.logger != nil {
		t.logger.put(t.line(level, text, of...))
	}
}

func (t *telemetry) line(level slog.Level, text string, of ...slog.Attr) line {
	return line{level, "leasehold: " + t.typ + ": " + text, append([]slog.Attr{slog.String("family", t.family)}, of...)}
}

// end waits for a moment until all is told and written.
func (t *telemetry) end() {
	if t.observed(); t != nil && t.logger != nil {
		t.logger.flush()
	}
}

// logged returns how logs name an attempt: by the hash of its key and the start of its ID.
func logged(a *attempt) []slog.Attr {
	sum := sha256.Sum256([]byte(a.res.Label()))
	id := a.req.ID()
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
func (t *telemetry) acquired(ctx context.Context, w *attempt, began time.Time, answer any, err error) {
	if t == nil || t.ownUse || w.Turns != nil && !w.Own || w.Quiet {
		return
	}
	outcome := acquireOutcome(ctx, err)
	if answer != nil {
		outcome = leasehold.OutcomeComplete
	}
	t.observe(leasehold.Event{
		Kind: leasehold.EventAcquired, Outcome: outcome, Context: ctx,
		Duration: time.Since(began), Permits: w.Permits, Waited: w.ticket != 0,
	})
}

// Report reports the outcome of a Quiet attempt that began at began: l was granted, or err is
// the error. It returns the cause of l's end if l has ended; then the Observer is told nothing.
func (m *Manager) Report(ctx context.Context, a Attempt, l *Lease, began time.Time, waited bool, err error) error {
	if err == nil {
		if why := l.Ended(); why != nil {
			return why
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.a.why != nil {
			return l.a.fail("hold")
		}
		l.a.quiet = false
	}
	if m.events != nil {
		m.events.observe(leasehold.Event{
			Kind: leasehold.EventAcquired, Outcome: acquireOutcome(ctx, err), Context: ctx,
			Duration: time.Since(began), Permits: a.Permits, Waited: waited,
		})
	}
	return nil
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

// holdOutcome returns how a hold ended because of why.
func holdOutcome(why error) string {
	switch {
	case errors.Is(why, leasehold.ErrReleased):
		return leasehold.OutcomeReleased
	case errors.Is(why, leasehold.ErrClosed):
		return leasehold.OutcomeClosed
	case errors.Is(why, leasehold.ErrRevoked):
		return leasehold.OutcomeRevoked
	case errors.Is(why, leasehold.ErrMaxHold):
		return leasehold.OutcomeMaxHold
	}
	return leasehold.OutcomeLost
}

// lateGrant reports a grant that came too late to be used.
func (t *telemetry) lateGrant(a *attempt) {
	if t == nil {
		return
	}
	t.observe(leasehold.Event{Kind: leasehold.EventLateGrant})
	t.log(slog.LevelInfo, "a grant came too late, and is given back", logged(a)...)
}

// released reports that the holder or Close gave the lease back.
func (t *telemetry) released(a *attempt, why error) {
	if t == nil {
		return
	}
	outcome := leasehold.OutcomeReleased
	if errors.Is(why, leasehold.ErrClosed) {
		outcome = leasehold.OutcomeClosed
	}
	t.holdEnded(a, outcome)
}

func (t *telemetry) holdEnded(a *attempt, outcome string) {
	if !t.ownUse && (a.Turns == nil || a.Own && !a.turned) && !a.quiet { // with turns, each of them is a hold
		t.observe(leasehold.Event{
			Kind: leasehold.EventHoldEnded, Outcome: outcome, Duration: a.m.now() - a.grantAt, Permits: a.Permits,
		})
	}
}

// ended reports a lease that ended because of why before it was given back. inHand says that
// its holder had not let go of it yet.
func (t *telemetry) ended(a *attempt, why error, inHand bool) {
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
		t.released(a, why) // its renewal gave it back on purpose: see Ended
		return
	}
	t.observe(leasehold.Event{Kind: leasehold.EventLeaseEnded, Outcome: outcome})
	if inHand {
		t.holdEnded(a, outcome)
	}
	t.log(slog.LevelWarn, "a lease ended before it was given back", append(logged(a), slog.String("cause", outcome))...)
}

// staleRelease reports the release of a lease that had been lost.
func (t *telemetry) staleRelease(a *attempt) {
	if t != nil && !t.ownUse {
		t.observe(leasehold.Event{Kind: leasehold.EventStaleRelease})
	}
}

// renewed reports the outcome of a renewal of a lease with this deadline.
func (t *telemetry) renewed(deadline time.Time, r *Result) {
	if t == nil {
		return
	}
	e := leasehold.Event{Kind: leasehold.EventRenewed, Outcome: leasehold.OutcomeOK}
	switch {
	case r.Code == Ended:
		return // it gave the lease back
	case r.Code == Gone || r.Code == Revoked:
		e.Outcome = leasehold.OutcomeLost
	case r.Err != nil:
		e.Outcome = leasehold.OutcomeUnavailable
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
