package singleflight

import (
	"sync/atomic"
	"time"
)

// Source says how a Result was obtained.
type Source int

const (
	// Cached says that the value was in Redis and was fresh.
	Cached Source = iota + 1
	// Stale says that the value was in Redis and its TTL was over, or, while Redis cannot be
	// asked, that it was in the memory of this process.
	Stale
	// Loaded says that this caller's own loader returned the value.
	Loaded
	// Shared says that another caller, in this process or in another one, loaded the value
	// while this caller waited.
	Shared
	// Near says that the value was in the memory of this process, and that no Invalidate has
	// returned since Redis confirmed it. See Config.NearFor.
	Near
)

// String returns the name of the source, in lower case.
func (s Source) String() string {
	if names := [...]string{"cached", "stale", "loaded", "shared", "near"}; s >= 1 && int(s) <= len(names) {
		return names[s-1]
	}
	return "unknown"
}

// Result is a value together with its source and age.
type Result[T any] struct {
	Value  T
	Source Source
	Age    time.Duration // since the value was published
}

// State describes a key in the whole fleet.
type State struct {
	Cached    bool          // a value or an ErrNotFound is cached
	NotFound  bool          // the cached entry is an ErrNotFound
	Age       time.Duration // since the entry was published
	FreshFor  time.Duration // until its TTL is over; 0 if it is over
	KeptFor   time.Duration // until the entry is gone from Redis
	Bytes     int           // stored size, envelope included
	Failure   string        // the text of a remembered failure
	FailedFor time.Duration // how long the failure is still remembered

	Loading     bool          // a load is running
	LoadID      string        // names the load; see Revoke
	LoadLabel   string        // the Config.Label of the handle that runs the load
	LoadingFor  time.Duration // since the lease of the load was taken
	LeaseEndsIn time.Duration // until the lease ends if it is not renewed
	Invalidated int           // running loads that may not store their result any more
	Waiting     int           // processes that wait for a load; counted up to 250
	Near        int           // handles that may serve a copy from their process's memory
}

// Stats counts what a Group has done since it was made. Each call of Fetch or Do and each key
// of a DoMany counts once: among Hits, NearHits, Stale, Loaded and Shared if it gets a value, and
// among Errors if it gets an error. A remembered ErrNotFound counts among Hits or NearHits. These
// six do not count Peek, Put, Invalidate and Inspect, bad keys, and calls after Close.
type Stats struct {
	Hits   int64 // served a fresh value from Redis
	Stale  int64 // served a stale value
	Loaded int64 // served by the caller's own load
	Shared int64 // served by another caller's load
	Errors int64 // ended with an error

	NearHits int64 // served from this process's memory, under NearFor

	Loads          int64 // calls of a loader, refreshes included
	Refreshes      int64 // loads in the background
	EarlyRefreshes int64 // loads in the background before the TTL was over
	FailedLoads    int64 // keys whose load returned an error (not ErrNotFound) or panicked
	Undecodable    int64 // entries in Redis that could not be decoded
	TooLarge       int64 // values that were not cached because of their size
}

type counters struct {
	served                                                         [Near + 1]atomic.Int64 // by source
	errors, loads, refreshes, early, failed, undecodable, tooLarge atomic.Int64
}

// Stats returns the counts so far.
func (g *Group[T]) Stats() Stats {
	c := &g.counts
	return Stats{
		Hits: c.served[Cached].Load(), NearHits: c.served[Near].Load(), Stale: c.served[Stale].Load(),
		Loaded: c.served[Loaded].Load(), Shared: c.served[Shared].Load(), Errors: c.errors.Load(),
		Loads: c.loads.Load(), Refreshes: c.refreshes.Load(), EarlyRefreshes: c.early.Load(), FailedLoads: c.failed.Load(),
		Undecodable: c.undecodable.Load(), TooLarge: c.tooLarge.Load(),
	}
}
