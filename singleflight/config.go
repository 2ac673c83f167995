package singleflight

import (
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
)

const (
	defaultLeaseTTL = 10 * time.Second
	defaultJitter   = 0.05
	maxJitter       = 0.5
	defaultMaxValue = 1 << 20
	maxValue        = 256 << 20
	maxLoads        = 100_000
	maxSentinels    = 64
	maxSentinelText = 256 // bytes
	// maxLife bounds every duration of the Config: Redis counts in ms.
	maxLife = 10 * 365 * 24 * time.Hour
)

// Policy says what a Group does when Redis can't be asked.
type Policy int

const (
	// Fail returns leasehold.ErrUnavailable: the origin is spared what Redis
	// kept away from it.
	Fail Policy = iota
	// LoadLocally loads all the same, once at a time for each key and process,
	// and stores nothing.
	LoadLocally
)

// Codec turns values into bytes and back. Unmarshal gets bytes that may have been
// written by anybody who can write to Redis: it must not trust them.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// Config says what a [Group] is. The zero value of every field but Name and TTL
// is a good default. Durations are kept in whole milliseconds, rounded up, and
// are at most ten years.
type Config[T any] struct {
	// Name is the family's name, 1 to 512 bytes, required. Groups of the same
	// Name and Prefix on the same Redis share their values where they agree on
	// T and Codec, or on Schema.
	Name string

	// TTL is how long a value is fresh, at least 1 ms, required. Jitter spreads
	// it. A process may take the server's clock for later than it is by the round
	// trip of a question for it, and a value for stale as much earlier.
	TTL time.Duration

	// TTLFor is the TTL of a value; where it returns 0, TTL; where it returns
	// less, the value is handed to all who wait for it and not stored. It is
	// called once a load and must not block; its panic counts as the loader's.
	// nil: TTL for every value.
	TTLFor func(key string, v T) time.Duration

	// StaleFor is how long after its TTL a value is still served, while one
	// caller's process rebuilds it. 0: it isn't.
	StaleFor time.Duration

	// StaleIfError is how long after its TTL a value is still served where its
	// loader fails, a failure is remembered, or Redis can't be asked to
	// coordinate. Never instead of ErrNotFound. 0: it isn't.
	StaleIfError time.Duration

	// ErrorTTL is how long a loader's failure is remembered and returned to
	// everybody who asks. 0: only those who waited for that load get it, and
	// a later caller loads.
	ErrorTTL time.Duration

	// NotFoundTTL is the same for [ErrNotFound]. 0: as ErrorTTL.
	NotFoundTTL time.Duration

	// EarlyRefresh makes a caller now and then rebuild a value in the background
	// before its TTL is over, the likelier the nearer the end and the slower the
	// load: the factor β of XFetch (Vattani, Chierichetti, Lowenstein, Optimal
	// Probabilistic Cache Stampede Prevention, VLDB 2015). 0: off; 1 is the
	// usual, larger is earlier, at most 100.
	EarlyRefresh float64

	// Jitter shortens or lengthens each TTL at random by up to this part of it,
	// so that what was stored together doesn't expire together: up to 0.5. 0 is
	// 0.05, negative is none.
	Jitter float64

	// LeaseTTL is how long a process's right to load lasts without a renewal, at
	// least 100 ms; 0 is 10 s. It doesn't bound the load, since it is renewed
	// until the result is published. It is how long others wait for a process
	// that died in its load.
	LeaseTTL time.Duration

	// LoadTimeout bounds one load: after that it counts as failed, with
	// [ErrLoadTimeout], and the loader's ctx ends. Where the lease was lost
	// before that, a waiting caller starts another load instead. 0: no bound.
	LoadTimeout time.Duration

	// SoftTimeout is how long a caller who has a stale value at hand waits for a
	// fresh one before it is served the stale one; the load goes on. 0: by
	// StaleFor a caller doesn't wait, by StaleIfError until the load has failed.
	SoftTimeout time.Duration

	// MaxValueBytes bounds an encoded value, up to 256 MiB; 0 is 1 MiB. A larger
	// one is returned to callers in the loader's process, not cached, and
	// logged; other processes then load by themselves. Put refuses it with
	// [ErrTooLarge].
	MaxValueBytes int

	// MaxLoads bounds how many loads of this family run at once in the whole
	// fleet, up to 100000; the others wait, in order. 0: no bound. A load whose
	// permit was lost (deleted in Redis, say) goes on. Nested loads of one family can
	// deadlock, when each holds a permit that another one needs: give them a
	// LoadTimeout.
	MaxLoads int

	// OnUnavailable says what to do when Redis can't be asked. That may take 3 s
	// to be known, where it answers and can't coordinate (a read-only replica).
	OnUnavailable Policy

	// Codec turns values into bytes; nil is msgpack, with []byte and string as
	// they are.
	Codec Codec

	// Schema tells apart versions of T that do not read each other's bytes. Each
	// schema of a key has a value, a remembered failure and a load of its own, so that
	// two versions of a program run side by side: each loads at most once per key and
	// TTL, and Put and Invalidate reach both. 0 is a fingerprint of T as the codec
	// sees it: names and types of the fields; of a custom Codec also its own type.
	Schema uint32

	// Errors are sentinels that errors.Is finds in a loader's failure in every
	// process that shares it, not only where the loader ran. They cross by their
	// texts, so all processes must list them: at most 64, with different texts of 1 to
	// 256 bytes without NUL.
	Errors []error

	// Prefix starts every key in Redis and the inbox channels, at most 512
	// bytes without braces or control bytes; "" is "leasehold".
	Prefix string

	// HashKeys makes keys appear in Redis and in errors only as a hash, for keys
	// that hold personal data. The hash is no secret: a person who can guess a key can hash it.
	// All processes of a family must agree on it.
	HashKeys bool

	// Label says in listings where a load runs: at most 64 bytes. "" is the host
	// and the process number, whose last 20 bytes are kept. "-" is none: a label is
	// data about machines, in Redis.
	Label string

	// Observer is told of what the group does; see [leasehold.Observer]. nil: nobody.
	Observer leasehold.Observer

	// Logger gets what no caller can be told: entries that can't be decoded, values
	// that are too large, refreshes that failed, leases of loads that were lost, and
	// when Redis goes out of reach and comes back. nil: none.
	Logger *slog.Logger
}

// withDefaults fills in what was left zero.
func (c Config[T]) withDefaults() Config[T] {
	if c.NotFoundTTL == 0 {
		c.NotFoundTTL = c.ErrorTTL
	}
	switch {
	case c.Jitter == 0:
		c.Jitter = defaultJitter
	case c.Jitter < 0:
		c.Jitter = 0
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = defaultLeaseTTL
	}
	if c.MaxValueBytes == 0 {
		c.MaxValueBytes = defaultMaxValue
	}
	if c.Schema == 0 {
		c.Schema = schemaOf[T](c.Codec)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// check says what is wrong with a Config with defaults, one error a field.
func (c Config[T]) check() []error {
	var errs []error
	bad := func(field, what string, args ...any) { errs = append(errs, keys.Bad(field, what, args...)) }
	if c.TTL < time.Millisecond || c.TTL > maxLife {
		bad("TTL", "is %v; want %v to %v", c.TTL, time.Millisecond, maxLife)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"StaleFor", c.StaleFor},
		{"StaleIfError", c.StaleIfError},
		{"ErrorTTL", c.ErrorTTL},
		{"NotFoundTTL", c.NotFoundTTL},
		{"LoadTimeout", c.LoadTimeout},
		{"SoftTimeout", c.SoftTimeout},
	} {
		if d.value < 0 || d.value > maxLife {
			bad(d.field, "is %v; want 0 to %v", d.value, maxLife)
		}
	}
	if math.IsNaN(c.EarlyRefresh) || c.EarlyRefresh < 0 || c.EarlyRefresh > 100 {
		bad("EarlyRefresh", "is %v; want 0 (off) to 100", c.EarlyRefresh)
	}
	if math.IsNaN(c.Jitter) || c.Jitter > maxJitter {
		bad("Jitter", "is %v; want up to %v, or negative for none", c.Jitter, maxJitter)
	}
	if c.LeaseTTL < lease.MinTTL || c.LeaseTTL > maxLife {
		bad("LeaseTTL", "is %v; want %v to %v, or 0 for %v", c.LeaseTTL, lease.MinTTL, maxLife, defaultLeaseTTL)
	}
	if c.MaxValueBytes < 1 || c.MaxValueBytes > maxValue {
		bad("MaxValueBytes", "is %d; want 1 to %d, or 0 for %d", c.MaxValueBytes, maxValue, defaultMaxValue)
	}
	if c.MaxLoads < 0 || c.MaxLoads > maxLoads {
		bad("MaxLoads", "is %d; want 0 (no bound) to %d", c.MaxLoads, maxLoads)
	}
	if len(c.Errors) > maxSentinels {
		bad("Errors", "has %d; want at most %d", len(c.Errors), maxSentinels)
	}
	texts := map[string]bool{}
	for i, err := range c.Errors {
		switch {
		case err == nil:
			bad("Errors", "[%d] is nil; want an error", i)
		case err.Error() == "" || len(err.Error()) > maxSentinelText || strings.Contains(err.Error(), separator):
			bad("Errors", "[%d] has a text of %d bytes; want 1 to %d without NUL", i, len(err.Error()), maxSentinelText)
		case texts[err.Error()]:
			bad("Errors", "[%d] has the text %q of another one; want different texts", i, err)
		default:
			texts[err.Error()] = true
		}
	}
	if c.Codec == nil {
		if why := unencodable[T](); why != "" {
			bad("T", "can't be encoded: %s; want a type that msgpack encodes, or a Codec", why)
		}
	}
	if c.OnUnavailable != Fail && c.OnUnavailable != LoadLocally {
		bad("OnUnavailable", "is %d; want Fail or LoadLocally", c.OnUnavailable)
	}
	return errs
}
