package mutex

import (
	"bytes"
	"context"
	"encoding"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/report"
	"github.com/leasehold-go/leasehold/luascripts"
)

var guardSetScript = call.NewScript("guard set", luascripts.GuardSet())

// maxToken is the highest token that Redis's own numbers hold exactly.
const maxToken = 1<<53 - 1

// forever is the longest time for which anything is kept. The embedded server counts in nanoseconds, and a longer one
// would overflow there.
const forever = 200 * 365 * 24 * time.Hour

// GuardConfig configures a [Guard].
type GuardConfig struct {
	// Name is the name of the family, 1 to 512 bytes. It is required. Guards with the same
	// Name and Prefix on the same Redis guard the same values.
	Name string

	// Prefix starts every key in Redis. It has at most 512 bytes, without braces or control
	// bytes. "": "leasehold".
	Prefix string

	// HashKeys makes keys appear in Redis and in errors only as a hash, for keys that hold
	// personal data. The hash is not a secret: anyone who can guess a key can compute its
	// hash. All processes of a family must use the same setting.
	HashKeys bool

	// Observer is told of each write that the guard refuses: leasehold.EventGuardRefused, with
	// family and key. Such a write shows a stale writer, also if the caller ignores the error.
	// nil: none.
	Observer leasehold.Observer
}

// Guard rejects writes by stale holders, for a resource that itself lives in Redis. It writes
// a value only if the writer's fencing token is no older than the newest token that the guard
// has accepted for that key. A Guard holds nothing, needs no Close and is safe for concurrent
// use.
type Guard struct {
	client *call.Client
	family keys.Family
	events *report.Reporter // nil: no Observer
}

// NewGuard checks cfg and returns a guard. Its error names every bad field, with its value and
// its bound. NewGuard sends nothing. The caller keeps rdb.
func NewGuard(rdb redis.UniversalClient, cfg GuardConfig) (*Guard, error) {
	family := keys.Family{Prefix: cfg.Prefix, Kind: keys.Guard, Name: cfg.Name, Hash: cfg.HashKeys}
	errs := family.Check()
	client, err := call.NewClient(rdb)
	if err != nil {
		errs = append(errs, keys.Invalid("%v", err))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("leasehold: mutex: guard: bad configuration: %w", errors.Join(errs...))
	}
	return &Guard{client: client, family: family, events: report.New("mutex", cfg.Name, cfg.Observer, nil)}, nil
}

// Set writes value under key for ttl, at least 1 ms. With a ttl of 0 the value does not
// expire. If the guard has accepted a newer token for key, Set returns leasehold.ErrFenced and
// writes nothing. The same token may write again. The accepted token outlives the value by
// 24 hours. If the value does not expire, the token does not either.
//
// value is text, bytes, a number, a bool, a time or an [encoding.BinaryMarshaler]. It is
// stored as go-redis stores an argument of SET.
//
// If ctx had ended before the call, Set returns ctx's error alone. If ctx ends during the
// call, Set returns at once with ctx's error joined with leasehold.ErrUnavailable, unless it is
// certain that nothing was sent. If Redis does not answer, Set returns within 3 s plus the
// client's ReadTimeout (5 s by default; 8 s if the client has none). The first Set of a guard
// asks for the server's version before that, for up to 8 s.
//
// leasehold.ErrInvalid says that an argument can never be served. After
// leasehold.ErrUnavailable, with ctx's error or without, the value may have been written or
// may still be written. It is safe to write it again with the same token.
//
// Set costs one round trip.
func (g *Guard) Set(ctx context.Context, key string, token uint64, value any, ttl time.Duration) error {
	call.NeedCtx(ctx)
	const op = "guard set"
	r, err := g.family.Resource(key)
	switch {
	case err != nil:
		return g.fail(op, r, err)
	case token < 1 || token > maxToken:
		return g.fail(op, r, keys.Invalid("token is %d; want 1 to %d", token, uint64(maxToken)))
	case ttl < 0 || (ttl > 0 && ttl < time.Millisecond):
		return g.fail(op, r, keys.Invalid("ttl is %v; want at least 1ms, or 0 for no expiry", ttl))
	}
	payload, err := encode(value)
	if err != nil {
		return g.fail(op, r, err)
	}
	one := call.New(guardSetScript, 2, r.Part("value"), r.Part("seen"), strconv.FormatUint(token, 10), payload, call.Milliseconds(min(ttl, forever)))
	written, errs := await(ctx, func(ctx context.Context) (bool, error) {
		reply, err := g.client.Do(ctx, one)
		switch {
		case err != nil:
			return false, err
		case len(reply) != 1 || reply[0] < 0 || reply[0] > 1: // no verdict
			return false, call.Malformed("guard set", reply)
		case reply[0] == 0:
			g.events.Observe(leasehold.Event{Kind: leasehold.EventGuardRefused, Key: r.Key()})
		}
		return reply[0] == 1, nil
	})
	switch {
	case errs != nil:
		return g.fail(op, r, errs...)
	case !written:
		return g.fail(op, r, leasehold.ErrFenced)
	}
	return nil
}

// Get reads the value of key. ok is false if there is none. Its errors are leasehold.ErrInvalid
// for a bad key, leasehold.ErrUnavailable and ctx's own, which is returned as by [Guard.Set].
//
// Get costs one round trip: a plain GET, from a replica if the client reads from replicas. It
// returns at once when ctx ends, and within 3 s plus the client's timeouts.
func (g *Guard) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	call.NeedCtx(ctx)
	const op = "guard get"
	r, err := g.family.Resource(key)
	if err != nil {
		return "", false, g.fail(op, r, err)
	}
	bounded, cancel := g.client.WithBound(ctx) // here, because it calls the code of the caller's ctx
	defer cancel()
	found, errs := await(ctx, func(ctx context.Context) (*string, error) {
		text, err := g.client.Get(bounded, r.Part("value"))
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, call.ErrSlow // the bound has passed; the caller's ctx has not ended
		case errors.Is(err, redis.Nil):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return &text, nil
	})
	switch {
	case errs != nil:
		return "", false, g.fail(op, r, errs...)
	case found == nil:
		return "", false, nil
	}
	return *found, true, nil
}

// await runs f and waits for it until ctx ends. If ctx has ended and it is certain that nothing
// was sent, the error is ctx's alone. Otherwise leasehold.ErrUnavailable is among the errors.
func await[T any](ctx context.Context, f func(ctx context.Context) (T, error)) (T, []error) {
	v, _, err := call.Wait(ctx, func(run func()) { go run() }, f)
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, call.ErrNotSent) && ctx.Err() != nil:
		return v, []error{ctx.Err()}
	}
	return v, []error{ctx.Err(), leasehold.ErrUnavailable, err}
}

func (g *Guard) fail(op string, r keys.Resource, errs ...error) error {
	label := r.Label()
	if label == "" {
		label = keys.Escape(g.family.Name)
	}
	return call.Fail("mutex", op, label, errs...)
}

// encode turns v into something that go-redis can surely write. An argument that turns out to
// be unwritable would leave half a command on the connection.
func encode(v any) (any, error) {
	switch v := v.(type) {
	case []byte:
		return bytes.Clone(v), nil // the caller may reuse it while the call is under way
	case string, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64,
		float32, float64, time.Time, time.Duration:
		return v, nil
	case *time.Time: // go-redis writes it as text, although it is a BinaryMarshaler
		if v == nil {
			return nil, keys.Invalid("value is a nil %T", v)
		}
		return *v, nil
	case encoding.BinaryMarshaler:
		b, err := v.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("%w: value does not marshal: %w", leasehold.ErrInvalid, err)
		}
		return bytes.Clone(b), nil
	}
	return nil, keys.Invalid("value is a %T; want text, bytes, a number, a bool, a time or an encoding.BinaryMarshaler", v)
}
