package singleflight

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/near"
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
	// maxLife bounds every duration of the Config, because Redis counts in milliseconds.
	maxLife = 10 * 365 * 24 * time.Hour
)

// Policy says what a Group does if Redis is unavailable.
type Policy int

const (
	// Fail returns leasehold.ErrUnavailable. It spares the origin the calls that the cache
	// normally keeps away from it.
	Fail Policy = iota
	// LoadLocally calls the loader without Redis, at most once at a time for each key and
	// process, and stores nothing. A call shares a load only if the call began before the
	// loader was called; later calls share the next load. MaxLoads then bounds the loads of
	// each process.
	LoadLocally
)

// String returns the name of the policy.
func (p Policy) String() string {
	switch p {
	case Fail:
		return "fail"
	case LoadLocally:
		return "load locally"
	}
	return fmt.Sprintf("Policy(%d)", int(p))
}

// Codec turns values into bytes and back. Marshal gets a T and Unmarshal a *T, so methods that
// encode T must not need a pointer to it. Unmarshal must not trust its input: every
// user of Redis may have written these bytes. If a method panics or calls [runtime.Goexit],
// it counts as failed.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// Config configures a [Group]. The zero value of every field except Name and TTL is a good
// default. Durations are rounded up to whole milliseconds, and are at most ten years.
type Config[T any] struct {
	// Name is the name of the family, 1 to 512 bytes. It is required. Groups with the same
	// Name and Prefix on the same Redis share their values if they have the same T and Codec,
	// or the same Schema.
	Name string

	// TTL is how long a value is fresh, at least 1 ms. It is required. Jitter varies it. The
	// server's clock counts. A process may treat a value as stale too early, by up to the round
	// trip of a question for the server's time.
	TTL time.Duration

	// TTLFor returns the TTL of a value that was loaded or Put. 0: TTL applies. Negative: the value
	// is handed to all callers that wait for it, and is not stored. If TTLFor panics after a load,
	// the loader counts as panicked. nil: TTL applies to every value.
	TTLFor func(key string, v T) time.Duration

	// StaleFor is how long after its TTL a value is still served while one process rebuilds
	// it. 0: a stale value is not served.
	StaleFor time.Duration

	// StaleIfError is how long after its TTL a value is still served if its loader fails, if a
	// failure is remembered, or if Redis is not available to coordinate. It is never served
	// instead of ErrNotFound. 0: a stale value is not served.
	StaleIfError time.Duration

	// ErrorTTL is how long a loader's failure is remembered. Every caller that asks during
	// that time gets the failure. A panic is not remembered. 0: only the callers that waited
	// for that load get it, and a later caller loads again.
	ErrorTTL time.Duration

	// NotFoundTTL is how long [ErrNotFound] is remembered. 0: as long as ErrorTTL.
	NotFoundTTL time.Duration

	// EarlyRefresh makes a caller now and then rebuild a value in the background before its TTL is
	// over, the likelier the nearer the end and the slower the load. It is the factor β of XFetch
	// (Vattani, Chierichetti, Lowenstein, Optimal Probabilistic Cache Stampede Prevention, VLDB
	// 2015), up to 100. 1 is the usual value. 0: no early refresh.
	EarlyRefresh float64

	// Jitter shortens or lengthens each TTL at random by up to this fraction of it, at most
	// 0.5, so that values that were stored together do not expire together. 0: 0.05. Negative:
	// no jitter.
	Jitter float64

	// LeaseTTL is how long a process's right to load lasts without a renewal, at least 100 ms. It
	// does not bound the load. It is how long others wait if a process dies in its load. 0: 10 s.
	LeaseTTL time.Duration

	// LoadTimeout bounds one load. When it is over, the load counts as failed with
	// [ErrLoadTimeout] and the loader's ctx ends. If the lease was lost before that, a waiting
	// caller starts another load instead. 0: no bound.
	LoadTimeout time.Duration

	// SoftTimeout is how long a caller for whom there is a stale value waits for a fresh one.
	// Then it is served the stale value, and the load goes on. 0: under StaleFor a caller does
	// not wait; under StaleIfError it waits until the load has failed.
	SoftTimeout time.Duration

	// MaxValueBytes bounds an encoded value, up to 256 MiB. A larger value is returned to the
	// callers in the loader's process only, and is logged. Put refuses it with [ErrTooLarge].
	// Storing what was loaded may take 1 s, or a second for each MiB up to 3 s; a value that the
	// network does not carry in that time is not cached, which is logged. 0: 1 MiB.
	MaxValueBytes int

	// MaxLoads bounds how many loads of this family run at the same time in the whole fleet, up to
	// 100000, and in each process also while Redis is away. Further loads wait, in order. A load
	// counts until its loader has returned. If its permit is lost, it goes on. Nested loads of
	// one family can deadlock: set a LoadTimeout, and heed the loader's ctx. 0: no bound.
	MaxLoads int

	// NearFor is how long this process may serve a value from its own memory after Redis
	// confirmed it, 20 ms to 1 min. A value that is read often is then kept under a read lease,
	// which reads renew in the background. Invalidate and Put, of any process, return only when no
	// process can serve the old value any more: a round trip more, and up to NearFor if a process
	// hangs. With StaleIfError, values in memory are served as Stale while Redis cannot be asked.
	// Client-side caching must be off, and all processes must run a version that knows NearFor
	// before it is set in one. 0: each hit asks Redis.
	NearFor time.Duration

	// NearBytes bounds the memory for NearFor: values, names and what belongs to them. It is at
	// least 64 KiB. 0: 64 MiB.
	NearBytes int

	// OnUnavailable says what to do if Redis is unavailable. A Group may need 3 s to notice
	// this if Redis answers but cannot coordinate (a read-only replica). The default is Fail.
	OnUnavailable Policy

	// Codec turns values into bytes. nil: msgpack, but []byte and string are stored as they
	// are. Msgpack has no names of types: what is in a field of type any comes back as a plain
	// value, a struct as a map and a small int as an int8. A time comes back in the local zone, and
	// a nil pointer to an embedded struct as an empty one. A field comes back
	// empty if a later one has its name, also a field of a struct that is embedded before that one.
	Codec Codec

	// Schema tells apart versions of T that cannot read each other's bytes. Each schema of a key has
	// its own value, remembered failure and load, so two versions of a program can run side by
	// side; Put and Invalidate reach both. 0: a fingerprint of T as the codec sees it, of the names
	// and types of the fields. If Codec is set, its type counts, too, and the names and hidden
	// fields of all types in T. Set a Schema if the same type comes to write cents, not euros.
	Schema uint32

	// Errors lists sentinels that errors.Is finds in a loader's failure in every process that shares
	// it. Only their texts cross, so all processes must list them: at most 64, with different texts
	// of 1 to 256 bytes without NUL. An error that is ErrNotFound, too, crosses as ErrNotFound alone.
	Errors []error

	// Prefix starts every key in Redis and the names of the inbox channels. It has at most
	// 512 bytes, without braces or control bytes. "": "leasehold".
	Prefix string

	// HashKeys makes keys appear in Redis and in errors only as a hash, for keys that hold
	// personal data. The hash is not a secret: anyone who can guess a key can compute its
	// hash. All processes of a family must use the same setting.
	HashKeys bool

	// Label says in listings which process runs a load. It has at most 64 bytes, and is stored in
	// Redis. "": the host and the process number, of which the last 20 bytes are kept. "-": none.
	Label string

	// Observer is told what the group does; see [leasehold.Observer]. nil: no observer.
	Observer leasehold.Observer

	// Logger gets what cannot be reported to every caller: entries that cannot be decoded, values
	// that are too large or cannot be encoded or stored, loaders that panicked (with the stack),
	// refreshes that failed, lost leases of loads, and Redis going out of reach. nil: no log.
	Logger *slog.Logger
}

func (c Config[T]) withDefaults() Config[T] {
	c.NotFoundTTL = cmp.Or(c.NotFoundTTL, c.ErrorTTL)
	c.Jitter = max(0, cmp.Or(c.Jitter, defaultJitter))
	c.LeaseTTL = cmp.Or(c.LeaseTTL, defaultLeaseTTL)
	c.MaxValueBytes = cmp.Or(c.MaxValueBytes, defaultMaxValue)
	c.NearBytes = cmp.Or(c.NearBytes, near.DefaultBytes)
	if c.Schema == 0 {
		c.Schema = schemaOf[T](c.Codec)
	}
	return c
}

// check returns one error for each bad field. c must have its defaults.
func (c Config[T]) check() []error {
	var errs []error
	want := func(ok bool, field, what string, args ...any) {
		if !ok {
			errs = append(errs, keys.Bad(field, what, args...))
		}
	}
	want(c.TTL >= time.Millisecond && c.TTL <= maxLife, "TTL", "is %v; want %v to %v", c.TTL, time.Millisecond, maxLife)
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
		want(d.value >= 0 && d.value <= maxLife, d.field, "is %v; want 0 to %v", d.value, maxLife)
	}
	// Comparisons with NaN are false.
	want(c.EarlyRefresh >= 0 && c.EarlyRefresh <= 100, "EarlyRefresh", "is %v; want 0 (off) to 100", c.EarlyRefresh)
	want(c.Jitter <= maxJitter, "Jitter", "is %v; want up to %v, or negative for none", c.Jitter, maxJitter)
	want(c.LeaseTTL >= lease.MinTTL && c.LeaseTTL <= maxLife, "LeaseTTL", "is %v; want %v to %v, or 0 for %v", c.LeaseTTL, lease.MinTTL, maxLife, defaultLeaseTTL)
	want(c.MaxValueBytes >= 1 && c.MaxValueBytes <= maxValue, "MaxValueBytes", "is %d; want 1 to %d, or 0 for %d", c.MaxValueBytes, maxValue, defaultMaxValue)
	want(c.MaxLoads >= 0 && c.MaxLoads <= maxLoads, "MaxLoads", "is %d; want 0 (no bound) to %d", c.MaxLoads, maxLoads)
	want(c.NearFor == 0 || c.NearFor >= near.MinFor && c.NearFor <= near.MaxFor, "NearFor", "is %v; want 0 (off), or %v to %v", c.NearFor, near.MinFor, near.MaxFor)
	want(c.NearBytes >= near.MinBytes, "NearBytes", "is %d; want at least %d, or 0 for %d", c.NearBytes, near.MinBytes, near.DefaultBytes)
	if c.Codec == nil && !isRaw[T]() {
		why := codec.Unstorable(reflect.TypeFor[T]())
		want(why == "", "T", "can't be encoded: %s; want a type that msgpack encodes and decodes, or a Codec", why)
	}
	want(c.OnUnavailable == Fail || c.OnUnavailable == LoadLocally, "OnUnavailable", "is %d; want Fail or LoadLocally", c.OnUnavailable)
	return errs
}
