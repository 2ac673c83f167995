package singleflight

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// share is the outcome of a load for one of its flights.
type share[T any] struct {
	g     *Group[T]
	f     *flight[T]
	first *request[T] // its caller gets the value itself; nil: there is none, or it has left
	// others are the other requests. Those with joinedBeforeAsk joined before the flight asked
	// Redis, and so before the load began.
	others []*request[T]
	ended  error // of the flight, as it was when the loader returned

	part     part[T]
	failed   *failure           // there is no value
	raised   *raised            // there is neither
	env      envelope.Envelope  // the result for other callers
	encoding *failure           // what other callers get if the value cannot be encoded
	keep     time.Duration      // see loads.Result
	remember time.Duration      // see loads.Result
	pub      *loads.Publication // nil: the flight had no lease
}

// publish publishes the outcome of a load and answers the requests. Joining ends before that.
// So all requests in the flights joined before Redis checks whether the load was invalidated.
func (d *load[T]) publish(p product[T]) {
	shares := d.shares()
	if p.refused != nil {
		for _, s := range shares {
			s.abandon(p.refused)
		}
		return
	}
	var pubs []*loads.Publication
	for _, s := range shares {
		s.wrap(p)
		if !s.f.leased {
			continue
		}
		prefix, suffix := s.env.Encode()
		s.pub = &loads.Publication{Lease: &s.f.lease, Result: loads.Result{
			Prefix: prefix, Suffix: suffix, Keep: s.keep, Remember: s.remember,
		}}
		if s.ended == nil {
			pubs = append(pubs, s.pub)
		} else {
			s.f.lease.GiveBack()
		}
	}
	loads.Publish(d.g.manager, pubs)
	for _, s := range shares {
		if s.raised == nil && (s.failed == nil || s.failed.kind == envelope.NotFound) {
			d.g.near.Outdate(s.f.key) // also if no caller waits
		}
	}
	for _, p := range pubs {
		d.g.published(p)
	}
	d.logUnconfirmed(shares)
	for _, s := range shares {
		s.answer()
	}
}

// logUnconfirmed writes one line if Redis did not say that it stored what was loaded.
func (d *load[T]) logUnconfirmed(shares []*share[T]) {
	var first *share[T]
	keys, bytes := 0, 0
	for _, s := range shares {
		if s.pub != nil && s.pub.Err != nil && s.pub.Unstored == nil {
			first = cmp.Or(first, s)
			keys, bytes = keys+1, bytes+len(s.part.data)
		}
	}
	if first != nil {
		d.g.log(slog.LevelWarn, "Redis did not confirm in time that it stored what was loaded; its caller gets it, and it may not be cached; store less if the network is slow",
			first.f.target, slog.Any("error", first.pub.Err), slog.Int("keys", keys), slog.Int("bytes", bytes))
	}
}

// shares ends joining, and takes the requests out of the flights.
func (d *load[T]) shares() []*share[T] {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	all := make([]*share[T], len(d.flights))
	for i, f := range d.flights {
		s := &share[T]{g: d.g, f: f, others: f.takeRequests()}
		if own := slices.Index(s.others, f.own); own >= 0 {
			s.first = f.own
			s.others = slices.Delete(s.others, own, own+1)
		}
		s.ended = f.ended
		all[i] = s
	}
	return all
}

// abandon ends a flight whose loader was not called.
func (s *share[T]) abandon(why error) {
	s.f.pauseIfRefresh()
	if s.f.leased {
		s.f.lease.GiveBack()
	}
	if s.ended != nil {
		s.f.startAnew(s.all())
		return
	}
	answer(s.all(), outcome[T]{errs: inner(why)})
}

func (s *share[T]) all() []*request[T] {
	if s.first == nil {
		return s.others
	}
	return append(s.others, s.first)
}

// wrap takes the flight's part of what the loader returned, makes its envelope, and decides
// how long to keep it.
func (s *share[T]) wrap(p product[T]) {
	s.env = envelope.Envelope{Schema: s.g.cfg.Schema, Took: p.took}
	s.raised = p.raised
	one, ok := p.parts[s.f.key]
	switch {
	case s.raised != nil:
		s.wrapRaised()
	case ok:
		s.part = one
		s.wrapValue()
	default:
		s.failed = cmp.Or(p.failed, notFound)
		s.wrapFailure()
	}
	s.env.Kept = max(0, s.keep)
}

func (s *share[T]) wrapRaised() {
	s.env.Kind, s.env.Payload = envelope.Panic, s.raised.text
	if s.raised.goexit {
		s.env.Kind = envelope.Goexit
	}
	s.g.counts.failed.Add(1)
	s.f.pauseIfRefresh()
	// The stack is only logged here. It does not go to the process that gets the panic.
	s.g.log(slog.LevelError, s.raised.text, s.f.target, slog.String("stack", string(s.raised.stack)))
}

func (s *share[T]) wrapFailure() {
	g := s.g
	s.env.Kind = s.failed.kind
	if s.failed.kind == envelope.NotFound {
		s.keep = -1
		if g.cfg.NotFoundTTL > 0 {
			s.env.Fresh = g.jittered(g.cfg.NotFoundTTL)
			s.keep = s.env.Fresh + minKept
		}
		return
	}
	s.env.Payload, s.remember = s.failed.payload, g.cfg.ErrorTTL
	g.counts.failed.Add(1)
	if s.f.pauseIfRefresh() && s.ended == nil {
		g.log(slog.LevelWarn, "a refresh failed; the old value is served until it ends, and a later call tries again",
			s.f.target, slog.String("error", s.failed.err.Error()))
	}
}

// wrapValue is wrap for a value. A value that is not stored still removes the stored one,
// which is older.
func (s *share[T]) wrapValue() {
	g, data := s.g, s.part.data
	switch err := s.part.encoding; {
	case err != nil:
		s.encoding = &failure{err, envelope.Unmarshalable, errorText(err.Error())}
		s.env.Kind, s.env.Payload, s.keep = s.encoding.kind, s.encoding.payload, -1
		g.log(slog.LevelError, "a value can't be encoded; its callers get it, and it is not cached; mend its type or the Codec",
			s.f.target, slog.String("error", err.Error()))
	case len(data) > g.cfg.MaxValueBytes:
		// The mark takes the place of a remembered failure.
		s.env.Kind, s.remember, s.keep = envelope.TooLarge, tooLargeFor, -1
		g.counts.tooLarge.Add(1)
		g.log(slog.LevelWarn, "a value is too large; its callers get it, and it is not cached; raise MaxValueBytes or store less",
			s.f.target, slog.Int("bytes", len(data)), slog.Int("MaxValueBytes", g.cfg.MaxValueBytes))
	default:
		s.env.Kind, s.env.Payload = envelope.Value, data
		if s.keep = -1; s.part.ttl > 0 {
			s.env.Fresh, s.keep = s.part.ttl, g.kept(s.part.ttl)
		}
	}
}

func (s *share[T]) answer() {
	before, later := split(s.others)
	if s.pub == nil {
		// The load ran without coordination. If it did because the key's values are too large,
		// an invalidation would have removed the mark of that. Without Redis no process can know
		// of an invalidation.
		if mark := s.f.tooLargeMark; mark != "" && len(later) > 0 {
			if now, err := s.g.get(s.f.failure()); err != nil || now != mark {
				s.hand(before, later)
				return
			}
		}
		s.hand(s.others, nil)
		return
	}
	if s.pub.Unstored != nil {
		s.g.log(slog.LevelWarn, "the server refused to store a value; its callers get it, and it is not cached; the error says why",
			s.f.target, slog.Any("error", s.pub.Unstored))
	}
	switch {
	case s.ended != nil || (s.pub.Err == nil && s.pub.State == loads.LeaseOver):
		// The lease was lost. A failure may be due to the loss alone, so the requests try
		// again. A value is still good for the caller whose loader returned it.
		if s.failed != nil {
			s.f.startAnew(s.all())
			return
		}
		s.hand(nil, s.others)
	case s.pub.Err != nil && s.g.cfg.OnUnavailable != LoadLocally:
		s.hand(nil, nil)
		answer(s.others, outcome[T]{errs: []error{leasehold.ErrUnavailable, s.pub.Err}})
	case s.pub.Err != nil || s.pub.State == loads.HandedOnly:
		s.hand(before, later)
	default:
		s.hand(s.others, nil)
	}
}

// hand gives the caller whose loader ran what that loader returned, and others of this process
// the result. Each of them decodes it for itself, also the first one. The requests in again start
// anew.
func (s *share[T]) hand(others, again []*request[T]) {
	o := outcome[T]{env: s.env, source: Shared, failed: s.failed}
	if s.env.Kind == envelope.TooLarge {
		o.env.Payload = s.part.data
	}
	own := o
	own.source = Loaded
	switch {
	case s.raised != nil:
		own.raised = s.raised
		o.errs = []error{&RemoteError{Text: s.env.Payload, kind: s.env.Kind}}
	case s.failed == nil:
		own.raw = &s.part.value
		o.failed = s.encoding
	}
	if s.first != nil {
		answer([]*request[T]{s.first}, own)
	}
	answer(others, o)
	s.f.startAnew(again)
}
