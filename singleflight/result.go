package singleflight

import (
	"errors"
	"sync/atomic"
	"time"
)

// Source says where a Result is from.
type Source int

const (
	// Cached: it was in Redis, and fresh.
	Cached Source = iota + 1
	// Stale: it was in Redis, and its TTL was over.
	Stale
	// Loaded: by this caller's own loader.
	Loaded
	// Shared: loaded by another caller, of this process or another, while this
	// one waited.
	Shared
)

// String is the source's name, in lower case.
func (s Source) String() string {
	switch s {
	case Cached:
		return "cached"
	case Stale:
		return "stale"
	case Loaded:
		return "loaded"
	case Shared:
		return "shared"
	}
	return "unknown"
}

// Result is a value, and where it is from.
type Result[T any] struct {
	Value  T
	Source Source
	Age    time.Duration // since the load that made it was published
}

// State is what is known of a key in the whole fleet.
type State struct {
	Cached    bool          // there is a value, or a remembered ErrNotFound
	NotFound  bool          // it is that
	Age       time.Duration // since it was published
	FreshFor  time.Duration // until its TTL is over; 0 where that has passed
	KeptFor   time.Duration // until it is gone from Redis
	Bytes     int           // stored, envelope included
	Failure   string        // the text of a remembered failure
	FailedFor time.Duration // how long that is remembered yet

	Loading     bool          // a load runs
	LoadID      string        // tells loads apart
	LoadLabel   string        // where the load runs: Config.Label of its handle
	LoadingFor  time.Duration // since its lease was taken
	LeaseEndsIn time.Duration // if nobody renews it
	Invalidated int           // loads that run yet, but may not store their result
	Waiting     int           // processes that wait for a load; counted up to 250
}

// Stats counts what a Group has done since it was made. Each call of Fetch or Do
// that returns a value counts once among Hits, Stale, Loaded and Shared, and each that
// returns an error once among Errors, as does each key of a DoMany; but a remembered
// ErrNotFound counts among Hits. Not counted are Peek, Put, Invalidate and Inspect, keys that are refused before anything
// is sent, and calls after Close.
type Stats struct {
	Hits   int64 // served from Redis, fresh
	Stale  int64 // served from Redis, stale
	Loaded int64 // served by the caller's own load
	Shared int64 // served by another's load
	Errors int64 // ended with an error

	Loads          int64 // calls of a loader, refreshes included
	Refreshes      int64 // of these, behind a stale answer
	EarlyRefreshes int64 // of these, before the TTL was over
	FailedLoads    int64 // of these, that returned an error or panicked
	Undecodable    int64 // entries in Redis that were none
	TooLarge       int64 // values that were not cached because of their size
}

type counters struct {
	hits, stale, loaded, shared, errors                    atomic.Int64
	loads, refreshes, early, failed, undecodable, tooLarge atomic.Int64
}

// Stats returns the counts so far.
func (g *Group[T]) Stats() Stats {
	c := &g.counts
	return Stats{
		Hits: c.hits.Load(), Stale: c.stale.Load(), Loaded: c.loaded.Load(), Shared: c.shared.Load(), Errors: c.errors.Load(),
		Loads: c.loads.Load(), Refreshes: c.refreshes.Load(), EarlyRefreshes: c.early.Load(), FailedLoads: c.failed.Load(),
		Undecodable: c.undecodable.Load(), TooLarge: c.tooLarge.Load(),
	}
}

// add counts what a call returned for a key. A remembered ErrNotFound is a hit.
func (c *counters) add(from Source, errs []error) {
	if errs != nil && (from != Cached || !errors.Is(errors.Join(errs...), ErrNotFound)) {
		c.errors.Add(1)
		return
	}
	switch from {
	case Cached:
		c.hits.Add(1)
	case Stale:
		c.stale.Add(1)
	case Loaded:
		c.loaded.Add(1)
	case Shared:
		c.shared.Add(1)
	}
}
