// Package semaphore is a counted semaphore across processes: at most Limit
// permits of a key are held at once in the whole fleet, and those who wait get
// theirs in the order in which they came.
//
// A handle ([Semaphore]) serves a family of keys, one for every tenant, API or
// queue that has a cap of its own. What it hands out is a [Lease]: renewed in
// the background until it is released, with a Context that ends before anybody
// else can be granted its permits.
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
// Where nobody waits, taking and giving back cost a round trip each. Where
// somebody waits, the Release that frees a permit hands it over in the same
// round trip: the next in line owns it already when one message tells it so.
// However many wait, that is two script calls a turn; a waiting process sends
// one more each second and a half, for all its waiters on a key. Renewals of all
// leases of a handle share round trips.
//
// # What it promises
//
// By the server's clock, the unexpired permits of a key never number more than
// its limit. A holder that is cut off from Redis is told so, by its Context,
// before its permits are free again. A dead holder's permits are free when its
// TTL has passed; a dead waiter holds up the queue for two seconds at most.
// Nothing depends on a message arriving. Not promised: the cap itself through
// the loss of writes that Redis had acknowledged (an asynchronous failover, a
// restart without persistence) or jumps of the server's clock. Work that must
// not run twice even then needs a fencing token: see package mutex.
package semaphore
