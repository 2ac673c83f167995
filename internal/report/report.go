// Package report tells the Observer and the Logger of a Config what a handle does.
package report

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
)

// A Reporter passes on the events and the lines of one handle. The nil Reporter, of a handle
// with neither an Observer nor a Logger, passes on nothing.
type Reporter struct {
	observer *courier[leasehold.Event] // nil: none
	logger   *courier[line]            // nil: none
	typ      string                    // the package's name
	family   string
	panicked atomic.Bool // that the Observer panicked is logged once
	slow     atomic.Bool // that the TTL is too short for the network is logged once

	// The servers that are out of reach, by name, each with a key that it had. awayNow is
	// their number, because every answer looks at it.
	awayNow atomic.Int64
	mu      sync.Mutex
	away    map[string]string
}

type line struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// New returns nil if there is neither an Observer nor a Logger.
func New(typ, family string, observer leasehold.Observer, logger *slog.Logger) *Reporter {
	if observer == nil && logger == nil {
		return nil
	}
	r := &Reporter{typ: typ, family: family, away: map[string]string{}}
	if observer != nil {
		r.observer = &courier[leasehold.Event]{hand: observer.Observe, trouble: r.observerInTrouble}
	}
	if logger != nil {
		write := func(l line) { logger.LogAttrs(context.Background(), l.level, l.text, l.attrs...) }
		r.logger = &courier[line]{hand: write, trouble: func(dropped int, _ any) {
			if dropped > 0 { // nobody can be told of a Logger that panics
				write(r.line(slog.LevelWarn, "the Logger was too slow; lines were dropped; make its Handler faster", slog.Int("dropped", dropped)))
			}
		}}
	}
	return r
}

func (r *Reporter) observerInTrouble(dropped int, panicked any) {
	switch {
	case dropped > 0:
		r.Log(slog.LevelError, "the Observer was too slow; events were dropped, so what it counts is too low; make it faster", slog.Int("dropped", dropped))
	case !r.panicked.Swap(true):
		r.Log(slog.LevelError, "the Observer panicked; it goes on, and further panics are not logged; mend it", slog.Any("panic", panicked))
	}
}

// Tell adds type and family to an event and passes it to the Observer, if there is one, in the
// background. Its caller may hold locks. The channel is closed once the Observer has the event;
// it is nil if it will not have it.
func (r *Reporter) Tell(e leasehold.Event) (done <-chan struct{}) {
	if r == nil || r.observer == nil {
		return nil
	}
	e.Type, e.Family = r.typ, r.family
	return r.observer.put(e)
}

// Observe is Tell that waits until the Observer has the event, if that does not take long. It
// reports whether it has. Its caller must hold no lock.
func (r *Reporter) Observe(e leasehold.Event) bool {
	return r != nil && r.observer != nil && r.observer.wait(r.Tell(e))
}

// Observed waits until the Observer was told all events so far, if it does not take long. A
// call of the user's ends with it, so that an Observer knows of the call when it has returned.
func (r *Reporter) Observed() {
	if r != nil && r.observer != nil {
		r.observer.flush()
	}
}

// Log writes a line in the background. Its caller may hold locks.
func (r *Reporter) Log(level slog.Level, text string, of ...slog.Attr) {
	if r != nil && r.logger != nil {
		r.logger.put(r.line(level, text, of...))
	}
}

func (r *Reporter) line(level slog.Level, text string, of ...slog.Attr) line {
	return line{level, "leasehold: " + r.typ + ": " + text, append([]slog.Attr{slog.String("family", r.family)}, of...)}
}

// End waits for a moment until all is told and written.
func (r *Reporter) End() {
	if r.Observed(); r != nil && r.logger != nil {
		r.logger.flush()
	}
}

// Now returns the current time, or the zero time if nobody needs it.
func (r *Reporter) Now() time.Time {
	if r == nil {
		return time.Time{}
	}
	return time.Now()
}

// Acquired returns the event of a request that began at began and ended with err.
func Acquired(ctx context.Context, permits int, waited bool, began time.Time, err error) leasehold.Event {
	return leasehold.Event{
		Kind: leasehold.EventAcquired, Outcome: acquireOutcome(ctx, err), Context: ctx,
		Duration: time.Since(began), Permits: permits, Waited: waited,
	}
}

// acquireOutcome returns the outcome for the error of an acquisition. The error of a wait that
// ctx ended may also match ErrBusy or ErrUnavailable.
func acquireOutcome(ctx context.Context, err error) leasehold.Outcome {
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

func Ended(permits int, held time.Duration, why error) leasehold.Event {
	return leasehold.Event{Kind: leasehold.EventHoldEnded, Outcome: HoldOutcome(why), Duration: held, Permits: permits}
}

func HoldOutcome(why error) leasehold.Outcome {
	switch {
	case errors.Is(why, leasehold.ErrClosed):
		return leasehold.OutcomeClosed
	case errors.Is(why, leasehold.ErrRevoked):
		return leasehold.OutcomeRevoked
	case errors.Is(why, leasehold.ErrMaxHold):
		return leasehold.OutcomeMaxHold
	case !errors.Is(why, leasehold.ErrLost): // ErrReleased, or its renewal gave it back on purpose
		return leasehold.OutcomeReleased
	}
	return leasehold.OutcomeLost
}

// tripsInTTL is how many round trips a TTL must last at least. A lease is renewed when a third
// of it is over, and the answer must come before its end.
const tripsInTTL = 3

// RoundTrip logs once that a round trip took too long for the TTL.
func (r *Reporter) RoundTrip(ttl, took time.Duration) {
	if r == nil || took <= ttl/tripsInTTL || r.slow.Swap(true) {
		return
	}
	r.Log(slog.LevelWarn, "a round trip took longer than a third of the TTL; leases with so short a TTL will be lost; raise the TTL, or look at the network and the server",
		slog.Duration("ttl", ttl), slog.Duration("round_trip", took))
}

// Reached notes whether the server that has a Redis key could be reached; err is the outcome
// of a call, and Node of servers names the server of a key. The first call that could not reach
// it is an event, and so is the first later call that it answers.
func (r *Reporter) Reached(servers interface{ Node(key string) string }, key string, err error) {
	if r == nil || (err == nil && r.awayNow.Load() == 0) {
		return
	}
	name := servers.Node(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case call.OutOfReach(err):
		if _, known := r.away[name]; !known {
			r.away[name] = key
			r.awayNow.Add(1)
			r.Tell(leasehold.Event{Kind: leasehold.EventUnavailable})
			r.Log(slog.LevelWarn, "Redis is out of reach; calls wait or fail until it answers; check the server and the network")
		}
	case call.HasAnswer(err):
		for other, had := range r.away {
			// After a failover the key is on a server with another name.
			if servers.Node(had) == name {
				delete(r.away, other)
				r.awayNow.Add(-1)
				r.Tell(leasehold.Event{Kind: leasehold.EventAvailable})
				r.Log(slog.LevelInfo, "Redis is back; calls go on")
			}
		}
	}
}
