package mutex

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// maxToken is the highest token that Redis's own numbers hold exactly.
const maxToken = 1<<53 - 1

// Guard rejects writes by stale holders, for a resource that itself lives in
// Redis: a value is written only if its writer's fencing token is no older than
// the newest that the guard has accepted for that key. It holds nothing, needs
// no Close and is safe for concurrent use.
type Guard struct {
	rdb    redis.UniversalClient
	eng    *engine.Engine
	family keys.Family
	bad    error // what is wrong with rdb or the names, told at use
}

// NewGuard makes a guard over the values of a family, in keys that begin with
// "leasehold". A bad name is told by the first use.
func NewGuard(rdb redis.UniversalClient, name string) *Guard {
	return NewGuardPrefix(rdb, "", name)
}

// NewGuardPrefix is [NewGuard] with another prefix, as in Config.Prefix.
func NewGuardPrefix(rdb redis.UniversalClient, prefix, name string) *Guard {
	g := &Guard{rdb: rdb, family: keys.Family{Prefix: prefix, Kind: keys.Guard, Name: name}}
	eng, err := engine.New(rdb)
	g.eng, g.bad = eng, errors.Join(append(g.family.Check(), err)...)
	return g
}

// Set writes value under key for ttl (1 ms or more; 0 = it does not expire), in
// one script and one round trip, unless the guard has accepted a newer token:
// then leasehold.ErrFenced, and nothing is written. The same token may write
// again. value is whatever go-redis takes as an argument of SET: text, bytes, a
// number, a bool, a time or an [encoding.BinaryMarshaler].
//
// The token seen outlives the value: by 24 hours, or for ever where the value
// does not expire. Where ctx ends, or no answer comes
// (leasehold.ErrUnavailable), the value may have been written or may yet be:
// writing it again with the same token is safe.
func (g *Guard) Set(ctx context.Context, key string, token uint64, value any, ttl time.Duration) error {
	const op = "guard set"
	r, err := g.resource(key)
	switch {
	case err != nil:
		return g.fail(op, r, err)
	case token < 1 || token > maxToken:
		return g.fail(op, r, fmt.Errorf("token is %d; want 1 to %d", token, uint64(maxToken)))
	case ttl < 0 || (ttl > 0 && ttl < time.Millisecond):
		return g.fail(op, r, fmt.Errorf("ttl is %v; want at least 1ms, or 0 for no expiry", ttl))
	}
	payload, err := encode(value)
	if err != nil {
		return g.fail(op, r, err)
	}
	if err := ctx.Err(); err != nil {
		return g.fail(op, r, err, leasehold.ErrUnavailable)
	}
	call := engine.GuardSet(r.Part("value"), r.Part("seen"), strconv.FormatUint(token, 10), payload, ttl)
	type outcome struct {
		reply []int64
		err   error
	}
	done := make(chan outcome, 1)
	go func() { // go-redis does not end a read when ctx does
		reply, err := g.eng.Do(ctx, call)
		done <- outcome{reply, err}
	}()
	select {
	case o := <-done:
		switch {
		case o.err != nil:
			return g.fail(op, r, ctx.Err(), leasehold.ErrUnavailable, o.err)
		case len(o.reply) != 1 || o.reply[0] != 1:
			return g.fail(op, r, leasehold.ErrFenced)
		}
		return nil
	case <-ctx.Done():
		return g.fail(op, r, ctx.Err(), leasehold.ErrUnavailable)
	}
}

// Get reads the value of key: a plain GET, [redis.Nil] where there is none.
func (g *Guard) Get(ctx context.Context, key string) *redis.StringCmd {
	r, err := g.resource(key)
	if err != nil {
		cmd := redis.NewStringCmd(ctx)
		cmd.SetErr(g.fail("guard get", r, err))
		return cmd
	}
	return g.rdb.Get(ctx, r.Part("value"))
}

func (g *Guard) resource(key string) (keys.Resource, error) {
	if g.bad != nil {
		return keys.Resource{}, g.bad
	}
	return g.family.Resource(key)
}

func (g *Guard) fail(op string, r keys.Resource, errs ...error) error {
	label := r.Label
	if label == "" {
		label = keys.Escape(g.family.Name)
	}
	return engine.Fail("mutex", op, label, errs...)
}

// encode makes v what go-redis surely writes: an argument that turns out to be
// none while it is written would leave half a command on the connection.
func encode(v any) (any, error) {
	switch v := v.(type) {
	case string, []byte, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64,
		float32, float64, time.Time, time.Duration:
		return v, nil
	case encoding.BinaryMarshaler:
		b, err := v.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("value does not marshal: %w", err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("value is a %T; want text, bytes, a number, a bool, a time or an encoding.BinaryMarshaler", v)
}
