// Package singleflight rebuilds cached values once in the fleet: where a hot key
// is missing or has expired, one process loads it, its lease renewed until it has
// published the result, and all others are woken with that result or served the
// stale one.
//
// A handle ([Group]) serves a family of keys with values of one type:
//
//	users, err := singleflight.New(rdb, singleflight.Config[User]{
//		Name: "users", TTL: time.Minute, StaleFor: 10 * time.Minute,
//	})
//	…
//	user, err := users.Do(ctx, id, func(ctx context.Context) (User, error) {
//		return db.User(ctx, id)
//	})
//
// # What it costs
//
// A hit is one GET, without any script, and none at all where the client caches
// (go-redis's client-side caching). A cold miss is three round trips for the
// process that loads: the GET, a script that takes the lease, and one that
// publishes. It is as many for the processes that wait: the GET, a script that
// queues, and the subscription to their inbox, if they have none at that time,
// with one more script call, since a message may have been missed before; the
// result comes as a message where it is at most 4 KiB, else with one GET a
// process. Of all callers in a process one asks, for all of them.
//
// Nobody polls: a process that waits sends one script call each second and a
// half, for all that it waits for on a key.
//
// # What it promises
//
// One load at a time: by the server's clock a key has at most one holder of the
// lease to load it. Only who holds it, and only if no Invalidate came meanwhile,
// stores the result. Whoever asks after [Group.Invalidate] returned never gets a
// value whose load began before. When the process that loads dies, exactly one of
// those that wait takes over when its lease has ended; where it only fails, they
// get its error. A caller whose ctx ends leaves; the load goes on as long as
// anybody waits for it in any process.
//
// Not promised, as with everything in this module: the above through the loss of
// writes that Redis had acknowledged (an asynchronous failover) or jumps of the
// server's clock. A load that was cut off from Redis may still run when the next
// one begins: its ctx has ended then, and what it returns is not stored.
package singleflight
