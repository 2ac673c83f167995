package leasehold

import "time"

// Holder describes one held lease in a listing.
type Holder struct {
	// ID names the lease to operators. The ID method of the lease returns the same. It is not
	// the owner id: nobody can give the lease back with it.
	ID string
	// Permits is the number of permits that the lease has. It is 1 for a lock.
	Permits int
	// Label says in which process the holder runs. It is the Config.Label of the holder's
	// handle, by default the host and the process number. It is "" if the holder has no label.
	Label string
	// Since is the time of the grant, by the server's clock. If the exact time is not known,
	// Since is the latest time that is known to be right: the lease has been held since then
	// at least.
	Since time.Time
	// ExpiresIn is how long the lease still lasts if its holder does not renew it.
	ExpiresIn time.Duration
	// Keeps says that the holder's process keeps leases (Config.KeepFor), so this one may be idle.
	Keeps bool
}

// Waiter describes one request in a queue in a listing.
type Waiter struct {
	// ID names the request to operators.
	ID string
	// Permits is the number of permits that the request waits for. It is 1 for a lock.
	Permits int
	// Label says in which process the waiter runs, as for a Holder.
	Label string
	// Position is the waiter's place among all live waiters. The next one to be served has
	// position 1.
	Position int
	// WaitingFor is how long ago the request was queued, by the server's clock.
	WaitingFor time.Duration
}
