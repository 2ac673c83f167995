// Package mutex provides a lock across processes. At most one caller holds the lock of a key
// in the whole fleet, and waiting callers get it in the order of their arrival. Each holder
// gets a fencing token that is greater than those of all earlier holders.
//
// A lock that can expire cannot by itself stop a late write. If a holder is paused for too
// long, none of its timers runs during the pause. But the resource can refuse the write, if it
// rejects every token that is older than the newest one it has seen. So pass [Lock.Token]
// along with each write. If the resource itself lives in Redis, [Guard] refuses stale writes.
//
//	locks, err := mutex.New(rdb, mutex.Config{Name: "orders"})
//	…
//	err = locks.Do(ctx, orderID, func(ctx context.Context, token uint64) error {
//		return store.Save(ctx, order, token) // refuses tokens below the last one
//	})
//
// # What it costs
//
// As in package semaphore, locking costs one round trip and unlocking costs one. Handing the
// lock to a waiter is part of the unlock. The token is issued by the script that grants the
// lock, so it costs no round trip of its own. A failed attempt gets no token, and an attempt
// that is sent twice gets the same token both times.
//
// # What it promises
//
// By the server's clock, a key has at most one unexpired lease. The Context of a holder that
// is cut off from Redis ends before another caller can be granted the lock. Tokens of a key
// rise from grant to grant, even across expiry, FLUSHALL, restart and failover. The condition
// is that the server's clock does not go back by more than the time since the last grant.
//
// The package cannot promise exclusion if Redis loses writes that it had acknowledged (an
// asynchronous failover, a restart without persistence, an evicted key) or if the server's
// clock jumps. In these cases the token decides whose write counts.
//
// # Errors
//
// Package [leasehold] lists what [errors.Is] matches. [errors.As] finds a *leasehold.BusyError
// behind ErrBusy, and a *leasehold.RevokedError behind ErrRevoked. A [Guard] refuses a stale
// write with leasehold.ErrFenced.
package mutex
