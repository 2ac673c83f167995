// Package mutex is a lock across processes: at most one holder a key in the
// whole fleet, in the order in which they came, each with a fencing token that
// is greater than that of every holder before.
//
// A lock that can expire cannot by itself keep a holder that was paused for too
// long from writing late: no timer of its own runs while it is paused. What can
// is the resource, if it refuses a token older than the newest it has seen. So
// pass [Lock.Token] along with what you write; where the resource lives in Redis
// itself, [Guard] does the refusing.
//
//	locks, err := mutex.New(rdb, mutex.Config{Name: "orders"})
//	…
//	err = locks.Do(ctx, orderID, func(ctx context.Context, token uint64) error {
//		return store.Save(ctx, order, token) // refuses tokens below the last one
//	})
//
// # What it costs
//
// As with package semaphore: a round trip to lock and one to unlock; a hand-over
// to a waiter is part of the unlock. The token is issued in the script that
// grants the lock, so it costs no round trip of its own; a failed attempt issues
// none, and one that is sent twice gets the same one.
//
// # What it promises
//
// By the server's clock, at most one unexpired lease a key. A holder that is cut
// off is told so by its Context before another can be granted the lock. Tokens
// of a key rise from grant to grant, also across expiry, FLUSHALL, restart and
// failover, as long as the server's clock does not go back by more than the time
// since the last grant. Not promised: exclusion through the loss of writes that
// Redis had acknowledged (an asynchronous failover, a restart without
// persistence) or jumps of the server's clock. There the token decides.
package mutex
