package leasehold

import "time"

// Holder is one lease that is held, as a listing shows it.
type Holder struct {
	// ID names the lease to operators, as the lease's own ID method does. It is
	// not the owner id: nobody can give the lease back with it.
	ID string
	// Permits is how many permits the lease has; of a lock, 1.
	Permits int
	// Label says where the holder runs: Config.Label of its handle, by default
	// the host and the process number. "" where the holder has none.
	Label string
	// Since is the server's time of the grant. Where that is not known exactly,
	// it is the latest time that is known to be right: the lease is held since
	// then at least.
	Since time.Time
	// ExpiresIn is how long the lease lasts if its holder does not renew it.
	ExpiresIn time.Duration
}

// Waiter is one request in a queue, as a listing shows it.
type Waiter struct {
	// ID names the request to operators.
	ID string
	// Permits is how many permits the request waits for; of a lock, 1.
	Permits int
	// Label says where the waiter runs: see Holder.
	Label string
	// Position is the waiter's place among all that are alive: 1 is next.
	Position int
	// WaitingFor is how long ago the request was queued, by the server's clock.
	WaitingFor time.Duration
}
