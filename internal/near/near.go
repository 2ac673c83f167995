// Package near keeps copies of cached values in the memory of the process, and makes
// invalidations wait until no process can serve an old copy any more.
//
// A process may serve its copy of a value while it holds a read lease on the key (Gray and
// Cheriton, Leases, 1989). The lease is a member of the sorted set near of the key, with the
// server's time until which it lasts. The script that reads a value also registers the reader.
// An invalidation lists the members, sends each of them a message, and returns once each has
// said that it dropped its copy, or once its lease is over. So no promise depends on a message.
//
// A [Cache] is the reading side of a handle (cache.go, read.go, drop.go), with its memory
// (store.go, table.go, door.go). A [Writer] is the side that invalidates (writer.go). Both share
// the [Line] of the handle: its name and its subscription (line.go).
//
// Locks: Cache.mu and Writer.mu are never held together. While one of them is held, only the
// lock of the inbox is taken. Nothing is sent under a lock. A hit takes none.
package near

import "time"

const (
	MinFor       = 20 * time.Millisecond
	MaxFor       = time.Minute
	MinBytes     = 64 << 10
	DefaultBytes = 64 << 20
)
