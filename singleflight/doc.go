// Package singleflight rebuilds cached values once in the fleet. If a hot key is
// missing or has expired, one process loads it, with a lease that is renewed
// until the result is published. All other callers are woken with that result or
// served the stale value.
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
// A hit is one GET, without any script, and sends nothing at all if the client
// caches (go-redis's client-side caching). A cold miss is three round trips for
// the process that loads: the GET, a script that takes the lease, and one that
// publishes. A process that waits makes three, too: the GET, a script that
// queues, and the subscription to its inbox, if it has none at that time, with
// one more script call, since a message may have been missed before. The result
// comes as a message if it is at most 4 KiB, else with one GET per process. Of
// all callers in a process, one asks for all of them.
//
// No caller polls: a process that waits sends one script call each 1.5 s, for
// all its callers on a key.
//
// # What it promises
//
// One load at a time: by the server's clock a key has at most one holder of the
// lease to load it. Only that holder, and only if no Invalidate came meanwhile,
// stores the result. A call that begins after [Group.Invalidate] returned never
// gets a value whose load began before. If the process that loads dies, exactly
// one of the waiting processes takes over when its lease has ended; if its load
// fails, they get its error. A caller whose ctx ends leaves; the load goes on as
// long as a caller waits for it in any process.
//
// Not promised, as with everything in this module: the above, if Redis loses
// writes that it had acknowledged (an asynchronous failover) or if the server's
// clock jumps. A load that was cut off from Redis may still run when the next
// one begins: its ctx has ended then, and its result is not stored.
package singleflight
