package semaphore

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
)

const (
	maxLimit   = 100_000
	maxPermits = 1_000 // of one acquisition
)

// Config says what a [Semaphore] is. The zero value of every field but Name and
// Limit is a good default.
type Config struct {
	// Name is the family's name, 1 to 512 bytes, required. Handles of the same
	// Name and Prefix on the same Redis share their permits.
	Name string

	// Limit is the number of permits of each key, 1 to 100000, required. Each
	// request is judged by the Limit of its own process: processes that differ
	// evict nobody, and one that allows less waits until that is in use.
	Limit int

	// LimitFor is the limit of a key; where it returns 0, Limit. nil: Limit for
	// every key. It is called once an acquisition and must not block.
	LimitFor func(key string) int

	// TTL is how long a lease lasts without a renewal, at least 100 ms; 0 is
	// 30 s. It is how long a dead process's permits are missed. Renewals come
	// after a third of it.
	TTL time.Duration

	// MaxHold bounds how long a lease may be held, renewals included. Then its
	// Context ends with leasehold.ErrMaxHold and its permits are given back,
	// though the holder may still be stopping. 0: no bound.
	MaxHold time.Duration

	// MaxWaiters bounds how many may wait for a key in the whole fleet; one more
	// gets leasehold.ErrQueueFull. 0: no bound.
	MaxWaiters int

	// Prefix starts every key in Redis and the inbox channels, at most 512
	// bytes without braces or control bytes; "" is "leasehold".
	Prefix string

	// HashKeys makes keys appear in Redis, in errors and in listings only as a
	// hash, for keys that hold personal data. It is no secret: who can guess a
	// key can hash it. All processes of a family must agree on it.
	HashKeys bool
}

func (c Config) check() []error {
	var errs []error
	if c.Limit < 1 || c.Limit > maxLimit {
		errs = append(errs, keys.Bad("Limit", "is %d; want 1 to %d", c.Limit, maxLimit))
	}
	return errs
}

func (c Config) manager() lease.Config {
	return lease.Config{
		Package:    "semaphore",
		Family:     keys.Family{Prefix: c.Prefix, Kind: keys.Semaphore, Name: c.Name, Hash: c.HashKeys},
		TTL:        c.TTL,
		MaxHold:    c.MaxHold,
		MaxWaiters: c.MaxWaiters,
	}
}

// limit is the limit of key by this process.
func (c Config) limit(key string) (int, error) {
	if c.LimitFor == nil {
		return c.Limit, nil
	}
	switch n := c.LimitFor(key); {
	case n == 0:
		return c.Limit, nil
	case n < 0 || n > maxLimit:
		return 0, keys.Bad("LimitFor", "is %d; want 1 to %d, or 0 for Limit", n, maxLimit)
	default:
		return n, nil
	}
}
