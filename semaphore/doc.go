// Package semaphore is a counted semaphore across processes: at most Limit
// permits of a key are held at once in the whole fleet, and waiting callers get
// theirs in the order of their arrival.
//
// A handle ([Semaphore]) serves a family of keys, one for every tenant, API or
// queue that has a limit of its own. It hands out a [Lease]: renewed in the
// background until it is released, with a Context that ends before another
// caller can be granted its permits.
//
//	caps, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 10})
//	…
//	lease, err := caps.Acquire(ctx, tenant)
//	if err != nil {
//		return err // errors.Is(err, leasehold.ErrBusy): still queued when ctx ended
//	}
//	defer lease.Release()
//	return export(lease.Context(), tenant)
//
// # What it costs
//
// If no caller waits, taking a permit and giving it back cost one round trip
// each. If callers wait, the Release that frees a permit hands it over in the
// same round trip: the next waiter holds it already when one message tells it
// so. That is two script calls per turn, for any number of waiters. A waiting
// process sends one more call each 1.5 s, for all its waiters on a key. Renewals
// of all leases of a handle share round trips.
//
// # What it promises
//
// By the server's clock, the unexpired permits of a key never number more than
// its limit. The Context of a holder that is cut off from Redis ends before its
// permits are free again. A dead holder's permits are free when its TTL has
// passed; a dead waiter holds up the queue for two seconds at most. Nothing
// depends on a message arriving.
//
// Not promised: the cap itself, if Redis loses writes that it had acknowledged
// (an asynchronous failover, a restart without persistence, an evicted key) or
// if the server's clock jumps. Work that must not run twice even then needs a
// fencing token: see package mutex.
package semaphore
