package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/report"
)

// What the attempts of a handle tell its Observer and its Logger.

// Events returns what passes events to the Observer and lines to the Logger of the handle; nil: it has neither.
func (m *Manager) Events() *report.Reporter { return m.events }

// isHold reports whether the acquisition and the hold of the lease are events. With turns, each of
// them is a hold.
func (a *attempt) isHold() bool {
	return !a.m.cfg.OwnEvents && (a.turns == nil || a.own && !a.turned) && !a.quiet
}

// tellAcquired tells of the outcome of an acquisition that began at began.
func (a *attempt) tellAcquired(ctx context.Context, began time.Time, answer any, err error) {
	if a.m.events == nil || !a.isHold() {
		return
	}
	e := report.Acquired(ctx, a.permits, a.ticket != 0, began, err)
	if answer != nil {
		e.Outcome = leasehold.OutcomeComplete
	}
	a.m.events.Tell(e)
}

// Report tells of the outcome of a Quiet attempt that began at began: l was granted, or err is
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
	m.events.Tell(report.Acquired(ctx, a.Permits, waited, began, err))
	return nil
}

// ReportLook tells how a call ended that began at began and sent no enter: err is its error, nil that there was
// nothing to do.
func (m *Manager) ReportLook(ctx context.Context, began time.Time, err error) {
	e := report.Acquired(ctx, 1, false, began, err)
	if err == nil {
		e.Outcome = leasehold.OutcomeComplete
	}
	m.events.Observe(e)
}

// tellLate tells of a grant that came too late to be used.
func (a *attempt) tellLate() {
	if a.m.events != nil {
		a.m.events.Tell(leasehold.Event{Kind: leasehold.EventLateGrant})
		a.m.events.Log(slog.LevelInfo, "a grant came after its caller had left, or after its term, and is given back; nothing is to be done", a.logged()...)
	}
}

// tellEnded tells of a lease that ended because of why. inHand says that, if it was lost, its
// holder had not let go of it yet.
func (a *attempt) tellEnded(why error, inHand bool) {
	events := a.m.events
	if events == nil {
		return
	}
	outcome := report.HoldOutcome(why)
	lost := outcome != leasehold.OutcomeReleased && outcome != leasehold.OutcomeClosed
	if lost {
		events.Tell(leasehold.Event{Kind: leasehold.EventLeaseEnded, Outcome: outcome})
	}
	if a.isHold() && (inHand || !lost) {
		events.Tell(report.Ended(a.permits, a.m.now()-a.grantAt, why))
	}
	if lost {
		events.Log(slog.LevelWarn, "a lease ended before it was given back; its holder has to stop, since another may hold it now", append(a.logged(), slog.String("cause", outcome))...)
	}
}

// tellStale tells of the release of a lease that had been lost.
func (a *attempt) tellStale() {
	if !a.m.cfg.OwnEvents {
		a.m.events.Tell(leasehold.Event{Kind: leasehold.EventStaleRelease})
	}
}

// logged returns how logs name an attempt: by the hash of its key and the start of its ID.
func (a *attempt) logged() []slog.Attr {
	sum := sha256.Sum256([]byte(a.res.Label()))
	id := a.req.ID()
	return []slog.Attr{
		slog.String("key_hash", hex.EncodeToString(sum[:8])),
		slog.String("id", id[:min(8, len(id))]),
	}
}

// tellRenewed tells of the outcome of a renewal of a lease with this deadline.
func (m *Manager) tellRenewed(deadline time.Time, r *protocol.Result) {
	e := leasehold.Event{Kind: leasehold.EventRenewed, Outcome: leasehold.OutcomeOK}
	switch {
	case m.events == nil || r.Code == life.Ended: // in which case it gave the lease back
		return
	case r.Code == life.Gone || r.Code == life.Revoked:
		e.Outcome = leasehold.OutcomeLost
	case r.Err != nil:
		e.Outcome = leasehold.OutcomeUnavailable
	default:
		e.Duration = max(0, time.Until(deadline))
	}
	m.events.Tell(e)
}

// TurnHeldTooLong tells that MaxHold ended a turn. The lease then serves the next turn.
func (l *Lease) TurnHeldTooLong() { l.a.tellEnded(leasehold.ErrMaxHold, false) }

// TurnReleasedLate tells that a turn was released after MaxHold had ended it.
func (l *Lease) TurnReleasedLate() { l.a.tellStale() }

// reached notes whether the server of res could be reached; err is the outcome of a call.
func (m *Manager) reached(res protocol.Resource, err error) {
	if m.events != nil {
		m.Reached(res.FirstKey(), err)
	}
}

// Reached notes whether the server that has a Redis key could be reached.
func (m *Manager) Reached(key string, err error) { m.events.Reached(m.client, key, err) }
