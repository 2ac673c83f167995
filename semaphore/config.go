package semaphore

import (
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/localturns"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/totals"
)

const (
	maxLimit   = 100_000
	maxPermits = 1_000 // per acquisition
	maxTotal   = 1_000_000
	maxShare   = 1_000
)

// Config configures a [Semaphore]. The zero value of every field except Name and Limit is a
// good default.
type Config struct {
	// Name is the name of the family, 1 to 512 bytes. It is required. Handles with the same
	// Name and Prefix on the same Redis share their permits.
	Name string

	// Limit is the number of permits of each key, 1 to 100000. It is required. Each request is
	// judged by the Limit of its own process. Lowering a limit takes no permit away: new
	// requests wait until the use is below it.
	Limit int

	// LimitFor returns the limit of a key, or 0 for Limit. It is called at least once per
	// acquisition and Inspect, and must not block. nil: Limit applies to every key.
	LimitFor func(key string) int

	// Total bounds the permits of all keys of the family together, 1 to 1000000. A request
	// takes its permits from the key and from the total at the same time. While the total is
	// short, each key with waiters is granted permits in proportion to its share, however many
	// requests it has queued. A key that is at its own limit does not hold up other keys. All
	// keys of such a family lie in one Cluster slot; docs/tenants.md says how much load that
	// carries. A family with a Total and one without have no permits in common, even if their
	// names are equal. 0: no total.
	Total int

	// ShareFor returns the share that a key gets of Total while keys compete, 1 to 1000, or 0
	// for 1. It is called once per acquisition and must not block. It is not called without a
	// Total. nil: the share of every key is 1.
	ShareFor func(key string) int

	// TTL is how long a lease lasts without a renewal, at least 100 ms. This is also how long
	// a crashed process's permits stay taken. A lease is renewed after a third of it. 0: 30 s.
	TTL time.Duration

	// MaxHold bounds how long a lease may be held, renewals included. When that time is over,
	// the Context of the lease ends with leasehold.ErrMaxHold and the permits are given back,
	// although the holder may still be stopping. 0: no bound.
	MaxHold time.Duration

	// MaxWaiters bounds how many requests may wait for a key in the whole fleet. A request
	// beyond it gets leasehold.ErrQueueFull. With LocalFor, MaxWaiters bounds two numbers: the
	// waiting requests of the same weight in each process, and the places that all processes
	// together have in Redis. 0: no bound.
	MaxWaiters int

	// MaxWaitersTotal bounds how many requests may wait for all keys of a family with a Total.
	// It must be at least MaxWaiters, and needs a Total. A request beyond it gets
	// leasehold.ErrQueueFull. Set MaxWaiters too, to a lower number, so that one key cannot
	// fill the queue. 0: no bound.
	MaxWaitersTotal int

	// MaxWait bounds how long Acquire, AcquireN, Do and DoN wait for a turn. When it is over
	// they return leasehold.ErrBusy with a *leasehold.BusyError, or leasehold.ErrUnavailable
	// if Redis had not answered the request, or had fallen silent. It does not bound how long a
	// lease is held. 0: wait for as long as ctx lives.
	MaxWait time.Duration

	// LocalFor is how long turns on a key may stay in this process. During that time a lease
	// that Redis granted is passed from one waiter of the process to the next without a call
	// to Redis. The time counts from the grant, or from the last time Redis said that no other
	// process waits. Then the process queues again behind the others. LocalFor is 1 ms to half
	// of TTL, and at most 1 s. 5 to 20 ms is recommended for keys that many goroutines of a
	// process want at a time: see docs/local.md. A family with a Total cannot have a LocalFor.
	// 0: strict order across the fleet.
	LocalFor time.Duration

	// KeepFor is how long a lease stays in this process after its last use, in case the process
	// wants it again. The next request for the same key, number of permits and limit then takes
	// it from memory, without a call to Redis, and its release returns it there. Redis asks for
	// it as soon as another request finds no room. KeepFor is 1 ms to half of TTL, and at most
	// 10 s; 1 s is a good first choice, with a TTL of 5 to 10 s, because the idle leases of a
	// process that crashes stay taken for a TTL: see docs/keep.md. A lease that was in use for 2
	// s is not kept, unless Redis was asked for another one of the key meanwhile. A family with
	// a Total cannot have a KeepFor. 0: a lease is given back at once.
	KeepFor time.Duration

	// Replicas is how many replicas of the server must confirm a grant (with WAIT) before it
	// counts. If fewer confirm within ReplicaWait, the grant is given back and the call
	// returns leasehold.ErrUnavailable with their number. A renewal that fewer confirm does
	// not move the Deadline. 0: none.
	//
	// Set it to the number of all replicas that may be promoted. With a lower number, a lease
	// survives a failover only if a replica that confirmed it is promoted. Even then a
	// failover can still forget a lease, although rarely. Work that a database decides does
	// not depend on it. docs/choosing.md has the counts from failovers.
	//
	// Replicas costs the replicas' round trip at each grant and renewal, and needs the
	// commands WAIT, PEXPIRE and SET. The embedded server of leaseholdtest has no replicas, so
	// with Replicas every call fails there.
	Replicas int

	// ReplicaWait is how long the replicas may take to confirm: 1 ms to a quarter of the TTL (of
	// MaxHold if that is shorter), and to three quarters of the client's ReadTimeout. A call may
	// take that much longer, even one that ends with leasehold.ErrBusy, and twice that if many
	// calls wait for replicas. ReplicaWait has no effect without Replicas. 0: 1 s, or the lower
	// of those two bounds if that is less.
	ReplicaWait time.Duration

	// Prefix starts every key in Redis and the names of the inbox channels. It has at most 512
	// bytes, without braces or control bytes. "": "leasehold".
	Prefix string

	// HashKeys makes keys appear in Redis, in errors and in listings only as a hash, for keys
	// that hold personal data. The hash is not a secret: anyone who can guess a key can
	// compute its hash. All processes of a family must use the same setting.
	HashKeys bool

	// Label says in listings which process holds a lease. It has at most 64 bytes. "": the
	// host and the process number, of which the last 20 bytes are kept. "-": no label.
	// Consider that a label puts data about your machines into Redis.
	Label string

	// Observer is told what the handle does; see [leasehold.Observer]. nil: no observer.
	Observer leasehold.Observer

	// Logger gets a line for each lease that was lost, revoked or ended by MaxHold, for each
	// grant that came too late, and whenever Redis goes out of reach and comes back. A line
	// has the family, a hash of the key, and the first 8 characters of the ID. nil: no log.
	Logger *slog.Logger
}

func (c Config) check() []error {
	errs := []error{
		keys.Unless(c.Limit >= 1 && c.Limit <= maxLimit, "Limit", "is %d; want 1 to %d", c.Limit, maxLimit),
		keys.Unless(c.Total >= 0 && c.Total <= maxTotal, "Total", "is %d; want 1 to %d, or 0 for no bound", c.Total, maxTotal),
	}
	switch {
	case c.MaxWaitersTotal == 0:
	case c.Total == 0:
		errs = append(errs, keys.Bad("MaxWaitersTotal", "is %d, and Total is 0; want a Total, or 0", c.MaxWaitersTotal))
	case c.MaxWaitersTotal < max(1, c.MaxWaiters):
		errs = append(errs, keys.Bad("MaxWaitersTotal", "is %d; want at least MaxWaiters, %d, or 0 for no bound", c.MaxWaitersTotal, c.MaxWaiters))
	}
	if c.LocalFor != 0 || c.KeepFor != 0 {
		errs = append(errs, c.checkTurns()...)
	}
	return errs
}

// checkTurns checks what lets permits stay in this process.
func (c Config) checkTurns() []error {
	return append(localturns.Check(c.LocalFor, c.KeepFor, c.TTL),
		keys.Unless(c.LocalFor == 0 || c.Total == 0, "LocalFor", "is %v, and Total is %d; want one of them to be 0: "+
			"a permit that stays in this process would not count as a grant to its key, and keys would not get their shares", c.LocalFor, c.Total),
		keys.Unless(c.KeepFor == 0 || c.Total == 0, "KeepFor", "is %v, and Total is %d; want one of them to be 0: "+
			"a permit that nobody uses would take room from other keys", c.KeepFor, c.Total))
}

func (c Config) family() keys.Family {
	return keys.Family{Prefix: c.Prefix, Kind: keys.Semaphore, Name: c.Name, Hash: c.HashKeys}
}

// manager returns the configuration of the manager. withTotal is nil without a Total.
func (c Config) manager(withTotal *totals.Family) lease.Config {
	family := c.family()
	var p protocol.Protocol = permits.Family{Family: family, Keeps: c.KeepFor > 0}
	if withTotal != nil {
		p = withTotal
	}
	return lease.Config{
		Package:     "semaphore",
		Family:      family,
		Protocol:    p,
		TTL:         c.TTL,
		MaxHold:     c.MaxHold,
		MaxWaiters:  c.MaxWaiters,
		MaxWait:     c.MaxWait,
		Replicas:    c.Replicas,
		ReplicaWait: c.ReplicaWait,
		Label:       c.Label,
		Observer:    c.Observer,
		Logger:      c.Logger,
		Keeps:       c.KeepFor > 0,
	}
}
