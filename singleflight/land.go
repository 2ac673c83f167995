package singleflight

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// publishWithin is how long a caller waits for its value to be published.
const publishWithin = time.Second

// landing is a load's result for one flight.
type landing[T any] struct {
	f       *flight[T]
	first   *caller[T]
	callers []*caller[T]
	ended   error // its lease had ended, or it was told to stop, by this

	value  T
	ttl    time.Duration
	err    error
	raised *raised

	env     envelope.Envelope // as others see it
	encoded error             // why a value can't be handed on
	large   string            // a value that may not leave this process
	keep    time.Duration
	failure time.Duration
	pub     *lease.Publication // nil: it had no lease, or has lost it
}

// land publishes what a load came to, and tells the callers. Joining ends before:
// so all who have joined came before Redis looked whether the load was
// invalidated.
func (d *load[T]) land(r loaded[T]) {
	g := d.g
	all := make([]*landing[T], len(d.flights))
	g.mu.Lock()
	for i, f := range d.flights {
		l := &landing[T]{f: f, first: d.firsts[f], callers: f.takeCallers()}
		if _, runs := d.running[f]; !runs {
			l.ended = context.Cause(f.context())
		}
		all[i] = l
	}
	g.mu.Unlock()

	var pubs []*lease.Publication
	for _, l := range all {
		if r.unrun != nil {
			g.giveUp(l, r.unrun)
			continue
		}
		l.result(r)
		g.wrap(l, r.took)
		if l.f.held {
			prefix, suffix := l.env.Encode()
			l.pub = &lease.Publication{Lease: &l.f.lease, Landing: engine.Landing{
				Prefix: prefix, Suffix: suffix, Keep: l.keep, Remember: l.failure,
			}}
			if l.ended == nil {
				pubs = append(pubs, l.pub)
			} else {
				l.f.lease.GiveBack()
			}
		}
	}
	if r.unrun != nil {
		return
	}
	g.m.Publish(pubs, publishWithin)
	for _, l := range all {
		g.settle(l)
	}
}

// giveUp ends a flight whose loader was not called.
func (g *Group[T]) giveUp(l *landing[T], why error) {
	if l.f.held {
		l.f.lease.GiveBack()
	}
	if l.ended != nil && !errors.Is(l.ended, leasehold.ErrClosed) {
		g.again(l.f, l.f.look, l.callers)
		return
	}
	tell(l.callers, outcome[T]{errs: []error{why}})
}

// context is what ends a flight's load.
func (f *flight[T]) context() context.Context {
	if f.held {
		return f.lease.Context()
	}
	return f.load.ctx
}

// result takes the flight's part of what the loader returned.
func (l *landing[T]) result(r loaded[T]) {
	l.raised, l.err = r.raised, r.err
	if r.raised != nil || r.err != nil {
		return
	}
	v, ok := r.values[l.f.t.key]
	if !ok {
		l.err = ErrNotFound
	}
	l.value, l.ttl = v, r.ttls[l.f.t.key]
}

// wrap makes the envelope of a result, and says how long to keep it.
func (g *Group[T]) wrap(l *landing[T], took time.Duration) {
	l.env = envelope.Envelope{Schema: g.cfg.Schema, Took: took}
	switch {
	case l.raised != nil:
		l.env.Kind, l.env.Payload = envelope.Panic, l.raised.text()
		if l.raised.goexit {
			l.env.Kind = envelope.Goexit
		}
		g.counts.failed.Add(1)
		// The stack stays here, whoever gets the panic.
		g.cfg.Logger.Error("leasehold: singleflight: "+l.raised.text(), "key", l.f.t.Label, "stack", string(l.raised.stack))
	case errors.Is(l.err, ErrNotFound):
		l.env.Kind, l.keep = envelope.NotFound, -1
		if g.cfg.NotFoundTTL > 0 {
			l.env.Fresh = g.jittered(g.cfg.NotFoundTTL)
			l.keep = l.env.Fresh + minKept
		}
	case l.err != nil:
		l.env.Kind, l.env.Payload, l.failure = envelope.Failure, crossing(l.err.Error()), g.cfg.ErrorTTL
		if errors.Is(l.err, ErrLoadTimeout) {
			l.env.Kind = envelope.Timeout
		}
		g.counts.failed.Add(1)
		if l.f.isBackground() && l.ended == nil {
			g.cfg.Logger.Warn("leasehold: singleflight: a refresh failed", "key", l.f.t.Label, "error", l.err)
		}
	default:
		g.wrapValue(l)
	}
	l.env.Kept = max(0, l.keep)
}

// isBackground reports whether the flight is a refresh, or became one, which is
// then not offered again at once.
func (f *flight[T]) isBackground() bool {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if f.background {
		f.g.hush(f.t.key, quietFor)
	}
	return f.background
}

// wrapValue does so for a value. One that is not stored still ends what was
// there, which is older.
func (g *Group[T]) wrapValue(l *landing[T]) {
	data, err := g.encode(l.value)
	switch {
	case err != nil:
		l.encoded = err
		l.env.Kind, l.env.Payload, l.keep = envelope.Unmarshalable, crossing(err.Error()), -1
		g.cfg.Logger.Error("leasehold: singleflight: a value can't be encoded: it is not cached", "key", l.f.t.Label, "error", err)
	case len(data) > g.cfg.MaxValueBytes:
		// The mark stands where a failure would.
		l.env.Kind, l.failure, l.keep = envelope.TooLarge, marked, -1
		g.counts.tooLarge.Add(1)
		g.cfg.Logger.Warn("leasehold: singleflight: a value is too large: it is not cached",
			"key", l.f.t.Label, "bytes", len(data), "MaxValueBytes", g.cfg.MaxValueBytes)
		l.large = data
	default:
		l.env.Kind, l.env.Payload = envelope.Value, data
		if l.keep = -1; l.ttl > 0 {
			l.env.Fresh, l.keep = l.ttl, g.kept(l.ttl)
		}
	}
}

// settle tells the callers of one flight what they get.
func (g *Group[T]) settle(l *landing[T]) {
	switch {
	case errors.Is(l.ended, leasehold.ErrClosed):
		// Its callers were told by Close.
		tell(l.callers, outcome[T]{errs: []error{leasehold.ErrClosed}})
		return
	case l.pub == nil && l.f.mark != "":
		g.settleMarked(l)
		return
	case l.pub == nil:
		// Without Redis: nobody can know of an invalidation.
		g.tellAll(l, l.callers)
		return
	}
	if l.pub.Unstored != nil {
		g.cfg.Logger.Warn("leasehold: singleflight: the server refused to publish a value as it was", "key", l.f.t.Label, "error", l.pub.Unstored)
	}
	early, late := split(without(l.callers, l.first))
	switch {
	case l.ended != nil || (l.pub.Err == nil && l.pub.State == engine.LandLost):
		// The lease was lost. A failure may be due to that alone; a value is as
		// good as any for who called for it.
		if l.err != nil && l.raised == nil {
			g.again(l.f, l.f.look, l.callers)
			return
		}
		g.tellFirst(l)
		g.again(l.f, l.f.look, append(early, late...))
	case l.pub.Err != nil && g.cfg.OnUnavailable != LoadLocally:
		g.tellFirst(l)
		tell(append(early, late...), outcome[T]{errs: []error{leasehold.ErrUnavailable, l.pub.Err}})
	case l.pub.Err != nil || l.pub.State == engine.LandAside:
		g.tellFirst(l)
		g.tellJoiners(l, early)
		g.again(l.f, l.f.look, late)
	default:
		g.tellAll(l, l.callers)
	}
}

// settleMarked tells the callers of a load that was not coordinated, since the
// values of its key are too large: who joined later gets its result only if the
// mark is still there, which an invalidation would have ended.
func (g *Group[T]) settleMarked(l *landing[T]) {
	early, late := split(without(l.callers, l.first))
	g.tellFirst(l)
	g.tellJoiners(l, early)
	if len(late) == 0 {
		return
	}
	if now, err := g.get(l.f.t.failure()); err == nil && now == l.f.mark {
		g.tellJoiners(l, late)
		return
	}
	g.again(l.f, l.f.look, late)
}

func without[T any](callers []*caller[T], first *caller[T]) []*caller[T] {
	var rest []*caller[T]
	for _, c := range callers {
		if c != first {
			rest = append(rest, c)
		}
	}
	return rest
}

func (g *Group[T]) tellAll(l *landing[T], callers []*caller[T]) {
	g.tellFirst(l)
	g.tellJoiners(l, without(callers, l.first))
}

// tellFirst gives the caller whose loader ran what it returned, if it is still
// there.
func (g *Group[T]) tellFirst(l *landing[T]) {
	if l.first == nil || len(without(l.callers, l.first)) == len(l.callers) {
		return
	}
	o := outcome[T]{own: true, value: l.value, raise: l.raised}
	if l.err != nil {
		o.errs = []error{l.err}
	}
	l.first.got <- o
}

// tellJoiners gives other callers of this process a result, each to be decoded
// for itself.
func (g *Group[T]) tellJoiners(l *landing[T], callers []*caller[T]) {
	o := outcome[T]{env: l.env, source: Shared}
	switch {
	case l.raised != nil:
		o.errs = []error{&RemoteError{Text: l.env.Payload, kind: l.env.Kind}}
	case l.err != nil:
		o.errs = []error{l.err}
	case l.encoded != nil:
		o.errs = []error{l.encoded}
	case l.large != "":
		o.env.Payload = l.large
	}
	tell(callers, o)
}
