// Package leasehold holds the errors and the telemetry types that the packages of this module
// share. It imports the standard library only. So code that only inspects an error does not
// import a Redis client.
//
// Leasehold coordinates processes through one Redis or Valkey: a single server, Sentinel or a
// Cluster. Choose a package by the task:
//
//   - [github.com/leasehold-go/leasehold/semaphore]: at most N callers run at once. Use it for
//     concurrency caps per tenant, worker slots and licences.
//   - [github.com/leasehold-go/leasehold/mutex]: exactly one caller runs at once. Each holder
//     gets a fencing token. With it, a resource can reject the write of a holder that was
//     paused for too long.
//   - [github.com/leasehold-go/leasehold/singleflight]: a cached value is expensive to make
//     and many callers want it. One process loads the value, and the others share the result.
//
// All three packages use leases. A lease is renewed in the background until it is released. If
// it cannot be renewed, its Context ends before another caller can be granted the same permit,
// lock or load. Callers that wait for a permit or a lock are served in the order of their
// arrival, across the whole fleet. Callers that wait for a value are all woken at the same time.
//
// # Errors
//
// Each error that the packages make matches one of these with [errors.Is], or the error of ctx
// if ctx ended the call. The text names the operation, the family and the key. It never contains
// an owner id or a payload.
//
//	errors.Is       says                                     errors.As
//	ErrBusy         nothing was free in time                 *BusyError: how busy, RetryAfter
//	ErrQueueFull    too many requests wait; matches ErrBusy  *BusyError, too
//	ErrLost         the lease ended before it was released
//	ErrRevoked      an operator took it; matches ErrLost     *RevokedError: the reason
//	ErrMaxHold      MaxHold was reached; matches ErrLost
//	ErrReleased     it was given back before
//	ErrFenced       a newer token was accepted before
//	ErrUnavailable  Redis could not confirm                  the client's error is wrapped
//	ErrClosed       the handle is closed
//	ErrInvalid      the arguments can never be served
//	ErrNoLease      Revoke found nothing with that ID
//
// Errors of the caller's own functions (the fn of Do, a loader) are returned as they are or
// wrapped. Package singleflight has more sentinels of its own.
package leasehold
