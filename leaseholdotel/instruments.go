package leaseholdotel

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/leasehold-go/leasehold"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments are all the instruments that an Observer records on.
type instruments struct {
	acquire, hold, margin, load metric.Float64Histogram
	held                        metric.Int64UpDownCounter
	limit, queue                metric.Int64ObservableGauge

	counters map[leasehold.EventKind]metric.Int64Counter // of the events that are counted, and no more
}

// seconds are the bounds of the histograms' buckets, from a round trip to a long hold.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// make makes the instruments and returns the errors.
func (i *instruments) make(m metric.Meter) (errs []error) {
	histogram := func(name, what string) metric.Float64Histogram {
		h, err := m.Float64Histogram("leasehold."+name, metric.WithUnit("s"), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(seconds...))
		errs = append(errs, err)
		return h
	}
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := m.Int64Counter("leasehold."+name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, unit, what string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge("leasehold."+name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return g
	}
	i.acquire = histogram("acquire.duration", "How long calls that acquire took, the wait for a turn included.")
	i.hold = histogram("hold.duration", "How long leases were held.")
	i.margin = histogram("renew.margin", "How long a lease would still have lasted when its renewal was confirmed.")
	i.load = histogram("load.duration", "How long loaders ran.")
	var err error
	i.held, err = m.Int64UpDownCounter("leasehold.permit.held", metric.WithUnit("{permit}"),
		metric.WithDescription("Permits and locks that this process holds."))
	errs = append(errs, err)
	i.limit = gauge("permit.limit", "{permit}", "The limits of the watched keys of a family, added up.")
	i.queue = gauge("queue.length", "{waiter}", "The waiters of the watched keys of a family in the whole fleet.")
	i.counters = map[leasehold.EventKind]metric.Int64Counter{
		leasehold.EventRenewed:      counter("renewals", "{renewal}", "Renewals that had an outcome."),
		leasehold.EventLeaseEnded:   counter("leases.ended", "{lease}", "Leases that ended before they were given back."),
		leasehold.EventLateGrant:    counter("grants.late", "{grant}", "Grants that came too late, and were given back."),
		leasehold.EventStaleRelease: counter("releases.stale", "{release}", "Releases of leases that were lost before."),
		leasehold.EventGuardRefused: counter("guard.refused", "{write}", "Writes that a guard refused for an older fencing token."),
		leasehold.EventLookup:       counter("cache.lookups", "{lookup}", "Keys that a cache served, or could not serve because Redis was away."),
		leasehold.EventPublished:    counter("cache.publications", "{publication}", "Results of loads that were published."),
		leasehold.EventDecodeFailed: counter("cache.decode.failures", "{entry}", "Entries of a cache that were no values."),
		leasehold.EventInvalidated:  counter("cache.invalidations", "{key}", "Keys that were invalidated."),
	}
	return errs
}

// These are the only attributes.
const (
	attrType    = attribute.Key("leasehold.type")
	attrFamily  = attribute.Key("leasehold.family")
	attrOutcome = attribute.Key("leasehold.outcome")
	attrKept    = attribute.Key("leasehold.kept") // true of a grant that took no call; else absent
)

// otherFamily stands for all families beyond MaxFamilies.
const otherFamily = "_other"

type setKey struct {
	typ, family, outcome string
	kept                 bool
}

// set holds the options for one set of attributes. They are made once.
type set struct {
	record []metric.RecordOption
	add    []metric.AddOption
	family []metric.AddOption // of type and family alone
}

// sets holds the options for all events so far. A reader takes no lock.
type sets struct {
	known atomic.Pointer[map[setKey]*set]

	mu       sync.Mutex
	most     int // the largest number of families
	families map[string]struct{}
}

func (s *sets) of(k setKey) *set {
	if known := s.known.Load(); known != nil {
		if one := (*known)[k]; one != nil {
			return one
		}
	}
	return s.learn(k)
}

// learn makes the options for a new key. A family beyond the bound is not kept under its own
// name, so that neither memory nor the metrics grow with the number of families.
func (s *sets) learn(k setKey) *set {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.family = s.capped(k.family); s.known.Load() != nil {
		if one := (*s.known.Load())[k]; one != nil {
			return one
		}
	}
	of := []attribute.KeyValue{attrType.String(k.typ), attrFamily.String(k.family)}
	family := metric.WithAttributeSet(attribute.NewSet(of...))
	if k.outcome != "" {
		of = append(of, attrOutcome.String(k.outcome))
	}
	if k.kept {
		of = append(of, attrKept.Bool(true))
	}
	full := metric.WithAttributeSet(attribute.NewSet(of...))
	one := &set{record: []metric.RecordOption{full}, add: []metric.AddOption{full}, family: []metric.AddOption{family}}
	next := map[setKey]*set{}
	if known := s.known.Load(); known != nil {
		next = maps.Clone(*known)
	}
	next[k] = one
	s.known.Store(&next)
	return one
}

// capped returns the family as the metrics show it: its own name, or otherFamily beyond the
// bound. Called with the lock.
func (s *sets) capped(family string) string {
	if _, known := s.families[family]; known {
		return family
	}
	if len(s.families) >= s.most {
		return otherFamily
	}
	if s.families == nil {
		s.families = map[string]struct{}{}
	}
	s.families[family] = struct{}{}
	return family
}

// familyOf takes the lock and calls capped.
func (s *sets) familyOf(family string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capped(family)
}
