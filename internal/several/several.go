// Package several lets package multi reach into the handles of packages semaphore and mutex,
// which set its variables when a program starts.
package several

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/lease"
)

// Part is one of several things that are taken together.
type Part struct {
	Manager *lease.Manager
	Attempt lease.Attempt // of a call that waits
	Err     error         // why there is no such thing: it matches leasehold.ErrInvalid
	Keeper  Keeper        // may keep leases of the key that nobody uses; nil: keeps none
}

// A Keeper gives back what it keeps of a key, and returns when that is confirmed, or ctx ends.
type Keeper interface {
	GiveBack(ctx context.Context, op, key string)
}

var (
	// Permits returns n permits of a key of a *semaphore.Semaphore.
	Permits func(handle any, key string, n int) Part
	// Lock returns the lock of a key of a *mutex.Mutex.
	Lock func(handle any, key string) Part
)
