// Package leasehold holds the vocabulary of the toolkit: the errors that its
// three packages share. It imports the standard library only, so that code
// which merely inspects an error need not pull in a Redis client.
//
// Leasehold coordinates processes through one Redis or Valkey (single server,
// Sentinel or Cluster). Which package one wants:
//
//   - [github.com/leasehold-go/leasehold/semaphore] when at most N may run at
//     once: per-tenant concurrency caps, worker slots, licences.
//   - [github.com/leasehold-go/leasehold/mutex] when exactly one may run at
//     once, and the resource it protects can check a fencing token.
//   - [github.com/leasehold-go/leasehold/singleflight] when a value is dear to
//     make and many want it: one process makes it, the others share it.
//
// All stand on leases. A lease is renewed in the background until it is given
// back, and its Context ends before anybody else can be granted what it holds.
// Those who wait for a permit or a lock are served in the order of their arrival
// across the whole fleet; those who wait for a value, together.
//
// Every error of the packages matches one of the sentinels below with
// [errors.Is]; its text names the operation, the family and the key, and never
// an owner id or a payload.
package leasehold
