// Package leasehold holds the vocabulary of the toolkit: the errors that its
// packages share. It imports the standard library only, so that code which
// merely inspects an error need not import a Redis client.
//
// Leasehold coordinates processes through one Redis or Valkey (single server,
// Sentinel or Cluster). Choose a package by the task:
//
//   - [github.com/leasehold-go/leasehold/semaphore]: at most N run at once.
//     Concurrency caps per tenant, worker slots, licences.
//   - [github.com/leasehold-go/leasehold/mutex]: exactly one runs at once. Its
//     fencing token lets a resource reject a holder that was paused for too long.
//   - [github.com/leasehold-go/leasehold/singleflight]: a cached value is
//     expensive to make and many callers want it. One process loads it, the
//     others share the result.
//
// All three use leases. A lease is renewed in the background until it is
// released. Its Context ends before another caller can be granted the same
// permit, lock or load. Callers that wait for a permit or a lock are served in
// the order of their arrival across the whole fleet. Callers that wait for a
// value are woken together.
//
// # Errors
//
// The errors that the packages make themselves match one of the sentinels below
// with [errors.Is], or ctx's error if ctx ended the call. The text names the
// operation, the family and the key, and never an owner id or a payload. Errors
// of the caller's own functions (the fn of Do, a loader) are returned as they
// are or wrapped; package singleflight has three more sentinels for loaders.
package leasehold
