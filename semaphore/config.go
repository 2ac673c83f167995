package semaphore

import (
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/totals"
)

const (
	maxLimit   = 100_000
	maxPermits = 1_000 // of one acquisition
	maxTotal   = 1_000_000
	maxShare   = 1_000
)

// Config says what a [Semaphore] is. The zero value of every field but Name and
// Limit is a good default.
type Config struct {
	// Name is the family's name, 1 to 512 bytes, required. Handles of the same
	// Name and Prefix on the same Redis share their permits.
	Name string

	// Limit is the number of permits of each key, 1 to 100000, required. Each
	// request is judged by the Limit of its own process. Lowering a limit evicts
	// nobody: new requests wait until usage drops below it.
	Limit int

	// LimitFor is the limit of a key; where it returns 0, Limit. nil: Limit for
	// every key. It is called once an acquisition and must not block.
	LimitFor func(key string) int

	// Total bounds the permits of all keys of the family together, 1 to 1000000. A
	// request takes its permits of the key and of the total together. While permits of
	// the total are short, each key that waits is granted permits in proportion to its
	// share, however much it has queued; a key at its own limit holds no other key up.
	// All keys of such a family lie in one Cluster slot: see docs/tenants.md for what it
	// carries. A family with a Total and one without have nothing in common, also where
	// their names are equal. 0: no bound, and nothing of this.
	Total int

	// ShareFor is a key's share of Total while keys compete, 1 to 1000; where it returns
	// 0, 1. nil: 1 for every key. It is called once an acquisition and must not block.
	// Without a Total it is not called.
	ShareFor func(key string) int

	// TTL is how long a lease lasts without a renewal, at least 100 ms; 0 is
	// 30 s. It is how long a crashed process's permits stay taken. Renewals come
	// after a third of it.
	TTL time.Duration

	// MaxHold bounds how long a lease may be held, renewals included. Then its
	// Context ends with leasehold.ErrMaxHold and its permits are given back,
	// though the holder may still be stopping. 0: no bound.
	MaxHold time.Duration

	// MaxWaiters bounds how many requests may wait for a key in the whole fleet;
	// one more gets leasehold.ErrQueueFull. With LocalFor it bounds the requests of the
	// same weight that wait in each process, and the places that all processes have in
	// Redis. 0: no bound.
	MaxWaiters int

	// MaxWaitersTotal bounds how many requests may wait for all keys of a family with a
	// Total, at least MaxWaiters; one more gets leasehold.ErrQueueFull. Set MaxWaiters,
	// too, and lower, so that one key cannot use it up. 0: no bound.
	MaxWaitersTotal int

	// MaxWait bounds how long Acquire, AcquireN, Do and DoN wait for a turn. When it
	// is over they return leasehold.ErrBusy with a *leasehold.BusyError, or
	// leasehold.ErrUnavailable where every call to Redis had failed. A lease that was
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
	// promoted. A failover then forgets hardly any lease, but it may: what a database decides
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

	// Label says in listings where a lease lives: at most 64 bytes. "" is the host
	// and the process number, whose last 20 bytes are kept. "-" is none: a label is
	// data about machines, in Redis.
	Label string

	// Observer is told of what the handle does; see [leasehold.Observer]. nil: nobody.
	Observer leasehold.Observer

	// Logger gets a line for each lease that was lost, revoked or ended by MaxHold,
	// for each grant that came too late, and when Redis goes out of reach and comes
	// back: with the family, a hash of the key, and the first 8 characters of the ID.
	// nil: none.
	Logger *slog.Logger
}

func (c Config) check() []error {
	var errs []error
	if c.Limit < 1 || c.Limit > maxLimit {
		errs = append(errs, keys.Bad("Limit", "is %d; want 1 to %d", c.Limit, maxLimit))
	}
	if c.Total < 0 || c.Total > maxTotal {
		errs = append(errs, keys.Bad("Total", "is %d; want 1 to %d, or 0 for no bound", c.Total, maxTotal))
	}
	switch {
	case c.MaxWaitersTotal == 0:
	case c.Total == 0:
		errs = append(errs, keys.Bad("MaxWaitersTotal", "is %d, and Total is 0; want a Total, or 0", c.MaxWaitersTotal))
	case c.MaxWaitersTotal < max(1, c.MaxWaiters):
		errs = append(errs, keys.Bad("MaxWaitersTotal", "is %d; want at least MaxWaiters, %d, or 0 for no bound", c.MaxWaitersTotal, c.MaxWaiters))
	}
	if c.LocalFor != 0 && c.Total != 0 {
		errs = append(errs, keys.Bad("LocalFor", "is %v, and Total is %d; want one of them to be 0: "+
			"a permit that stays in this process would not count as a grant to its key, and keys would not get their shares", c.LocalFor, c.Total))
	}
	return append(errs, localturns.Check(c.LocalFor, c.TTL)...)
}

// local is what the turns of a process are bounded by.
func (c Config) local() localturns.Config {
	return localturns.Config{LocalFor: c.LocalFor, MaxHold: c.MaxHold, MaxWaiters: c.MaxWaiters, MaxWait: c.MaxWait}
}

func (c Config) family() keys.Family {
	return keys.Family{Prefix: c.Prefix, Kind: keys.Semaphore, Name: c.Name, Hash: c.HashKeys}
}

// manager is what the Config comes to, with the family where it has a Total.
func (c Config) manager(withTotal *totals.Family) lease.Config {
	family := c.family()
	var protocol lease.Protocol = permits.Family{Family: family}
	if withTotal != nil {
		protocol = withTotal
	}
	return lease.Config{
		Package:     "semaphore",
		Family:      family,
		Protocol:    protocol,
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
