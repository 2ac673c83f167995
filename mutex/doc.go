// Package mutex is a lock across processes: at most one holder per key in the
// whole fleet, in the order of arrival. Each holder gets a fencing token that is
// greater than those of all earlier holders.
//
// A lock that can expire cannot by itself keep a holder that was paused for too
// long from writing late, since none of its timers runs during the pause. The
// resource can, if it refuses a token older than the newest one it has seen. So
// pass [Lock.Token] along with each write. If the resource lives in Redis
// itself, [Guard] refuses stale writes.
//
//	locks, err := mutex.New(rdb, mutex.Config{Name: "orders"})
//	…
//	err = locks.Do(ctx, orderID, func(ctx context.Context, token uint64) error {
//		return store.Save(ctx, order, token) // refuses tokens below the last one
//	})
//
// # What it costs
//
// As with package semaphore: one round trip to lock and one to unlock; a
// hand-over to a waiter is part of the unlock. The token is issued in the script
// that grants the lock, so it costs no round trip of its own. A failed attempt
// issues none, and an attempt that is sent twice gets the same one.
//
// # What it promises
//
// By the server's clock, at most one unexpired lease per key. The Context of a
// holder that is cut off from Redis ends before another caller can be granted
// the lock. Tokens of a key rise from grant to grant, also across expiry,
// FLUSHALL, restart and failover, as long as the server's clock does not go back
// by more than the time since the last grant.
//
// Not promised: exclusion, if Redis loses writes that it had acknowledged (an
// asynchronous failover, a restart without persistence, an evicted key) or if
// the server's clock jumps. The token decides then.
package mutex
