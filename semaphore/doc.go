// Package semaphore provides a counted semaphore across processes. At most Limit permits of a
// key are held at once in the whole fleet. Waiting callers get their permits in the order of
// their arrival.
//
// A handle ([Semaphore]) serves a family of keys, for example one key for every tenant, API or
// queue that has a limit of its own. Acquire returns a [Lease], which is renewed in the
// background until it is released. If the lease cannot be renewed, its Context ends before
// another caller can be granted its permits.
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
// If no caller waits, taking a permit costs one round trip and giving it back costs another.
// If callers wait, the Release that frees a permit grants it to the next waiter in the same
// round trip. That waiter already holds the permit when a message tells it so. So each turn
// costs two script calls, for any number of waiters. While it waits, a process sends one more
// call each 1.5 s, for all its waiters on a key. Renewals of all leases of a handle share
// round trips.
//
// # What it promises
//
// By the server's clock, the unexpired permits of a key never number more than its limit. The
// Context of a holder that is cut off from Redis ends before its permits are free again. The
// permits of a crashed holder are free when its TTL has passed. A crashed waiter holds up the
// queue for at most two seconds. None of this depends on a message arriving.
//
// The package cannot promise the cap if Redis loses writes that it had acknowledged (an
// asynchronous failover, a restart without persistence, an evicted key) or if the server's
// clock jumps. Work that must not run twice even then needs a fencing token: see package
// mutex.
//
// # Errors
//
// Package [leasehold] lists what [errors.Is] matches. [errors.As] finds a *leasehold.BusyError
// behind ErrBusy, and a *leasehold.RevokedError behind ErrRevoked.
package semaphore
