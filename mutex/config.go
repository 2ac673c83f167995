package mutex

import (
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/permits"
)

// Config configures a [Mutex]. The zero value of every field except Name is a good default.
type Config struct {
	// Name is the name of the family, 1 to 512 bytes. It is required. Handles with the same
	// Name and Prefix on the same Redis share their locks.
	Name string

	// TTL is how long a lock lasts without a renewal, at least 100 ms. This is also how long a
	// crashed process's lock stays taken. A lock is renewed after a third of it. 0: 30 s.
	TTL time.Duration

	// MaxHold bounds how long a lock may be held, renewals included. When that time is over,
	// the Context of the lock ends with leasehold.ErrMaxHold and the lock is given back,
	// although the holder may still be stopping. The fencing token then decides whose write
	// counts. 0: no bound.
	MaxHold time.Duration

	// MaxWaiters bounds how many requests may wait for a key in the whole fleet. A request
	// beyond it gets leasehold.ErrQueueFull. With LocalFor, MaxWaiters bounds two numbers: the
	// waiting requests in each process, and the places that all processes together have in
	// Redis. 0: no bound.
	MaxWaiters int

	// MaxWait bounds how long Lock and Do wait for a turn. When it is over they return
	// leasehold.ErrBusy with a *leasehold.BusyError, or leasehold.ErrUnavailable if Redis had
	// not answered the request, or had fallen silent. It does not bound how long a lock is
	// held. 0: wait for as long as ctx lives.
	MaxWait time.Duration

	// LocalFor is how long turns on a key may stay in this process. During that time a lease
	// that Redis granted is passed from one waiter of the process to the next without a call
	// to Redis. The time counts from the grant, or from the last time Redis said that no other
	// process waits. Then the process queues again behind the others. LocalFor is 1 ms to half
	// of TTL, and at most 1 s. 5 to 20 ms is recommended for keys that many goroutines of a
	// process want at a time: see docs/local.md. 0: strict order across the fleet.
	LocalFor time.Duration

	// KeepFor is how long a lease stays in this process after its last use, in case the process
	// wants it again. The next request for the same key then takes it from memory, without a
	// call to Redis, and its Unlock returns it there. Redis asks for it as soon as another
	// request finds the lock taken. KeepFor is 1 ms to half of TTL, and at most 10 s; 1 s is a
	// good first choice, with a TTL of 5 to 10 s, because the idle locks of a process that
	// crashes stay taken for a TTL: see docs/keep.md. A lock that was in use for 2 s is not kept.
	// 0: a lease is given back at once.
	KeepFor time.Duration

	// Replicas is how many replicas of the server must confirm a grant (with WAIT) before it
	// counts. If fewer confirm within ReplicaWait, the grant is given back and the call
	// returns leasehold.ErrUnavailable with their number. A renewal that fewer confirm does
	// not move the Deadline. 0: none.
	//
	// Set it to the number of all replicas that may be promoted. With a lower number, a lock
	// survives a failover only if a replica that confirmed it is promoted. Even then a
	// failover can still forget a lock, although rarely. The fencing token does not depend on
	// it. docs/choosing.md has the counts from failovers.
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

	// Label says in listings which process holds a lock. It has at most 64 bytes. "": the host
	// and the process number, of which the last 20 bytes are kept. "-": no label. Consider
	// that a label puts data about your machines into Redis.
	Label string

	// Observer is told what the handle does; see [leasehold.Observer]. nil: no observer.
	Observer leasehold.Observer

	// Logger gets a line for each lock that was lost, revoked or ended by MaxHold, for each
	// grant that came too late, and whenever Redis goes out of reach and comes back. A line
	// has the family, a hash of the key, and the first 8 characters of the ID. nil: no log.
	Logger *slog.Logger
}

func (c Config) manager() lease.Config {
	family := keys.Family{Prefix: c.Prefix, Kind: keys.Mutex, Name: c.Name, Hash: c.HashKeys}
	return lease.Config{
		Package:     "mutex",
		Family:      family,
		Protocol:    permits.Family{Family: family, Fenced: true, Keeps: c.KeepFor > 0},
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
