package singleflight

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/nested"
)

// observe passes an event to the Observer, if there is one. It reports whether the Observer has
// it.
func (g *Group[T]) observe(e leasehold.Event) bool {
	return g.cfg.Observer != nil && g.manager.Events().Observe(e)
}

// now returns the time if there is an Observer, else the zero time.
func (g *Group[T]) now() (began time.Time) {
	if g.cfg.Observer != nil {
		began = time.Now()
	}
	return began
}

// returned counts the outcome of a call for one key that began at began, and tells the
// Observer.
func (g *Group[T]) returned(began time.Time, from Source, errs []error) {
	if errs != nil && from != Cached && from != Near {
		g.counts.errors.Add(1)
		g.failed(began, errs)
		return
	}
	g.counts.served[from].Add(1) // a remembered ErrNotFound is a hit
	g.observe(leasehold.Event{Kind: leasehold.EventLookup, Outcome: outcomes[from]})
}

var outcomes = [...]leasehold.Outcome{
	Cached: leasehold.OutcomeHit, Near: leasehold.OutcomeNear, Stale: leasehold.OutcomeStale,
	Shared: leasehold.OutcomeShared, Loaded: leasehold.OutcomeLoaded,
}

// failed tells the Observer of a call that failed because Redis was away, unless its caller
// left. It looks only for the sentinels themselves: errors.Is could run code of the loader's
// error.
func (g *Group[T]) failed(began time.Time, errs []error) {
	if g.cfg.Observer != nil && slices.Contains(errs, leasehold.ErrUnavailable) && !slices.Contains(errs, context.Canceled) {
		g.observe(leasehold.Event{Kind: leasehold.EventLookup, Outcome: leasehold.OutcomeUnavailable, Duration: time.Since(began)})
	}
}

// observed tells the Observer of the start of a load. It returns the ctx that the Observer has
// set for the loader, nil if none, and a function that tells of the end of the load. That gets the
// load's own ctx, because a method of the Observer's may end the goroutine.
func (d *load[T]) observed() (replaced context.Context, ended func(p product[T], ctx context.Context)) {
	g := d.g
	if g.cfg.Observer == nil {
		return nil, func(product[T], context.Context) {}
	}
	l := &leasehold.Load{Context: d.ctx, Keys: len(d.keys)}
	began := time.Now()
	// If the Observer hangs, it may set the ctx at any time.
	if g.observe(leasehold.Event{Kind: leasehold.EventLoadStarted, Load: l}) && l.Context != nil && l.Context != d.ctx {
		replaced = nested.Calm{Context: l.Context}
	}
	return replaced, func(p product[T], ctx context.Context) {
		g.observe(leasehold.Event{
			Kind: leasehold.EventLoadEnded, Load: l, Duration: time.Since(began), Outcome: loadOutcome(p, ctx),
		})
	}
}

func loadOutcome[T any](p product[T], ctx context.Context) leasehold.Outcome {
	switch {
	case p.raised != nil:
		return leasehold.OutcomePanic
	case p.failed == nil:
		return leasehold.OutcomeOK
	case p.failed.kind == envelope.NotFound:
		return leasehold.OutcomeNotFound
	case p.failed.kind == envelope.Timeout:
		return leasehold.OutcomeTimeout
	case ctx.Err() != nil:
		return leasehold.OutcomeCanceled
	default:
		return leasehold.OutcomeError
	}
}

func (g *Group[T]) published(p *loads.Publication) {
	outcome := leasehold.OutcomeLost
	switch {
	case p.Err != nil:
		outcome = leasehold.OutcomeUnavailable
	case p.State == loads.Published:
		outcome = leasehold.OutcomeOK
	case p.State == loads.HandedOnly:
		outcome = leasehold.OutcomeInvalidated
	}
	g.observe(leasehold.Event{Kind: leasehold.EventPublished, Outcome: outcome})
}

// log writes a line about a key in the background.
func (g *Group[T]) log(level slog.Level, text string, t target, of ...slog.Attr) {
	g.manager.Events().Log(level, text, append([]slog.Attr{slog.String("key", t.Label())}, of...)...)
}
