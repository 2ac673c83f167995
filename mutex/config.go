package mutex

import (
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"
	"github.com/leasehold-go/leasehold/internal/permits"
)

// Config says what a [Mutex] is. The zero value of every field but Name is a
// good default.
type Config struct {
	// Name is the family's name, 1 to 512 bytes, required. Handles of the same
	// Name and Prefix on the same Redis share their locks.
	Name string

	// TTL is how long a lock lasts without a renewal, at least 100 ms; 0 is
	// 30 s. It is how long a crashed process's lock stays taken. Renewals come after
	// a third of it.
	TTL time.Duration

	// MaxHold bounds how long a lock may be held, renewals included. Then its
	// Context ends with leasehold.ErrMaxHold and it is given back, though the
	// holder may still be stopping: the fencing token decides. 0: no bound.
	MaxHold time.Duration

	// MaxWaiters bounds how many requests may wait for a key in the whole fleet;
	// one more gets leasehold.ErrQueueFull. With LocalFor it bounds the requests that
	// wait in each process, and the places that all processes have in Redis. 0: no bound.
	MaxWaiters int

	// MaxWait bounds how long Lock and Do wait for a turn. When it is over they
	// return leasehold.ErrBusy with a *leasehold.BusyError, or
	// leasehold.ErrUnavailable where every call to Redis had failed. A lock that was
	// obtained in time is not affected by it. 0: as long as ctx lives.
	MaxWait time.Duration

	// LocalFor is how long turns on a key may stay in this process: a lease that Redis
	// granted is passed from one waiter of the process to the next without a call to
	// Redis, until LocalFor after the grant, or after Redis said last that nobody else
	// waits. Then the process queues again behind the others. 1 ms to half of TTL, at
	// most 1 s; 5 to 20 ms is recommended for keys that many goroutines of a process
	// want at a time: see docs/local.md. 0: strict order across the fleet.
	LocalFor time.Duration

	// Replicas is how many replicas of the server must confirm a grant before it counts
	// (WAIT); 0: none. A grant that fewer confirmed within ReplicaWait is given back, and
	// the call returns leasehold.ErrUnavailable with their number. A renewal that fewer
	// confirmed does not move the Deadline. Set it to the number of all replicas that may
	// be promoted: with fewer, it protects only where the one that confirmed is the one
	// promoted. A failover then forgets hardly any lock, but it may: the fencing token
	// does not depend on it. It costs the replicas' round trip at each grant and
	// renewal, and needs the commands WAIT, PEXPIRE and SET. The embedded server of
	// leaseholdtest has no replicas, so there every call fails. docs/choosing.md has what was counted at failovers.
	Replicas int

	// ReplicaWait is how long the replicas may take: 1 ms to a quarter of the TTL, and to
	// three quarters of the client's ReadTimeout. 0 is 1 s, or less where one of those
	// is. A call takes that much longer at most, also one that ends with
	// leasehold.ErrBusy. It says nothing without Replicas.
	ReplicaWait time.Duration

	// Prefix starts every key in Redis and the inbox channels, at most 512
	// bytes without braces or control bytes; "" is "leasehold".
	Prefix string

	// HashKeys makes keys appear in Redis, in errors and in listings only as a
	// hash, for keys that hold personal data. The hash is no secret: anybody who can
	// guess a key can hash it. All processes of a family must agree on it.
	HashKeys bool

	// Label says in listings where a lock lives: at most 64 bytes. "" is the host
	// and the process number, whose last 20 bytes are kept. "-" is none: a label is
	// data about machines, in Redis.
	Label string

	// Observer is told of what the handle does; see [leasehold.Observer]. nil: nobody.
	Observer leasehold.Observer

	// Logger gets a line for each lock that was lost, revoked or ended by MaxHold,
	// for each grant that came too late, and when Redis goes out of reach and comes
	// back: with the family, a hash of the key, and the first 8 characters of the ID.
	// nil: none.
	Logger *slog.Logger
}

// local is what the turns of a process are bounded by.
func (c Config) local() localturns.Config {
	return localturns.Config{LocalFor: c.LocalFor, MaxHold: c.MaxHold, MaxWaiters: c.MaxWaiters, MaxWait: c.MaxWait}
}

func (c Config) manager() lease.Config {
	family := keys.Family{Prefix: c.Prefix, Kind: keys.Mutex, Name: c.Name, Hash: c.HashKeys}
	return lease.Config{
		Package:     "mutex",
		Family:      family,
		Protocol:    permits.Family{Family: family, Fenced: true},
		TTL:         c.TTL,
		MaxHold:     c.MaxHold,
		MaxWaiters:  c.MaxWaiters,
		MaxWait:     c.MaxWait,
		Replicas:    c.Replicas,
		ReplicaWait: c.ReplicaWait,
		Label:       c.Label,
		Observer:    c.Observer,
		Logger:      c.Logger,
	}
}
