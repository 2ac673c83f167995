// Package multi takes several things at once: permits and locks of any handles of packages
// semaphore and mutex, but those of mutex.NewQuorum. A request may need a permit of its tenant and one of its region. A
// transfer needs the locks of both accounts.
//
//	err := multi.Do(ctx, func(ctx context.Context, l *multi.Lease) error {
//		return move(ctx, from, to, l.Token(accounts, from), l.Token(accounts, to))
//	}, multi.Lock(accounts, from), multi.Lock(accounts, to))
//
// # What it promises
//
// No deadlock, whatever order the callers name: items are taken in the order of their names in
// Redis, which never changes. Handles of different servers are allowed. Calls that are nested in
// each other, here or with Lock and Acquire, are not ordered.
//
// If all items are free, taking them costs one round trip per handle and server, all at the same
// time, and so does giving them back. First come, first served for the item that a call waits
// for: crowds that want single items do not overtake it there. Under contention calls have at least
// as many turns as locks that are taken one after the other in the right order (BenchmarkSeveral).
//
// When a call returns an error, nothing is held, and what was under way is given back in the
// background.
//
// # What it costs others
//
// An item that was taken stays taken while the call waits for a later one: at most for the
// MaxWait of that item's handle, and for 5 to 8 s if a server is silent. A call tries items that
// it may have to give back at once; a TryLock of another caller that meets such a try is
// refused, although nobody needs the lock.
package multi
