// Package singleflight loads each cached value once in the whole fleet. If a hot key is
// missing or has expired, one process loads it. That process holds a lease, which is renewed
// until the result is published. All other callers are woken with that result, or are served
// the stale value.
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
// A hit costs one GET and no script. With Config.NearFor a hot value is served from the memory
// of the process, and a hit sends nothing.
//
// A cold miss costs three round trips for the process that loads: the GET, a script that takes
// the lease, and a script that publishes the result. A process that waits sends the GET, a script
// that queues, and, if it has no subscription yet, that and another script. The result comes in
// a message if it is at most 4 KiB, otherwise with one GET per process. One caller of a process
// asks Redis for all of them, and one call each 1.5 s is sent for as long as they wait.
//
// # What it promises
//
// One load at a time: by the server's clock, at most one process holds the lease to load a
// key. Only that process stores the result, and only if no Invalidate came meanwhile. A call
// that begins after [Group.Invalidate] returned never gets a value whose load began before.
//
// If the process that loads dies, exactly one of the waiting processes takes over when the
// lease has ended. If the load fails, the waiting processes get its error. A caller leaves
// when its ctx ends. The load goes on as long as a caller in any process waits for it.
//
// The package cannot promise this if Redis loses writes that it had acknowledged (an
// asynchronous failover) or if the server's clock jumps. A load that is cut off from Redis may
// still run when the next one begins. Its ctx has ended then, and its result is not stored.
//
// # Errors
//
// Package [leasehold] lists what [errors.Is] matches. Of this package come
//
//	errors.Is         says                                        errors.As
//	ErrNotFound       the loader said that there is no such value
//	ErrLoadTimeout    a load took longer than LoadTimeout
//	ErrLoaderPanicked the loader of another call panicked
//	ErrLoadCycle      the load would wait for itself
//	ErrNotStored      Put has only invalidated
//	ErrTooLarge       the value is larger than MaxValueBytes
//	Config.Errors     the loader of any process returned it       *RemoteError: its text
//	                  of several keys some failed                 *KeysError: by key
package singleflight
