package harness

import (
	"context"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Hits interleaves a bare GET and decode of a value with hits of the same, for values of some sizes. hits makes the
// competitors, all of one client.
func Hits(b *testing.B, hits func(b *testing.B, rdb *redis.Client, v User) []Runner) {
	for _, size := range []struct {
		name  string
		notes int
	}{{"100B", 20}, {"4kB", 4000}, {"100kB", 100_000}} {
		b.Run(size.name, func(b *testing.B) {
			rdb, v := Start(b).Client(), Ada(size.notes)
			floor := Runner{Name: "floor", Pair: BareHit(b, rdb, v)}
			Interleave(b, append([]Runner{floor}, hits(b, rdb, v)...)...)
		})
	}
}

// BareHit stores v and is a GET and decode of it: the floor of a cache's hit.
func BareHit[T any](b testing.TB, rdb *redis.Client, v T) func() error {
	b.Helper()
	ctx := context.Background()
	packed := redistest.Must(msgpack.Marshal(v))(b)
	redistest.WantErr(b, rdb.Set(ctx, "bare", packed, 0).Err())
	return func() error {
		data, err := rdb.Get(ctx, "bare").Bytes()
		if err != nil {
			return err
		}
		var v T
		return msgpack.Unmarshal(data, &v)
	}
}

// The calls of Redis that a lock and an unlock consist of, with as many words and nothing
// else: no decision, no reply that is looked at. What they cost is the floor of a pair with
// a queue, a token and an expiry by the server's clock.
var (
	takeCalls = redis.NewScript(`local time = redis.call('TIME')
redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3])
redis.call('SET', KEYS[4], time[1], 'PX', 86400000, 'GET')
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], ARGV[5])
return { 1, 2, 3, 4, 0, 0 }`)
	giveCalls = redis.NewScript(`redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('EXISTS', KEYS[2])
return { 1 }`)
)

type Calls struct {
	keys       []string
	take, give []any
}

// NewCalls makes the calls of n keys, and has the server know their scripts.
func NewCalls(b testing.TB, rdb redis.Scripter, n int) []Calls {
	b.Helper()
	for _, s := range []*redis.Script{takeCalls, giveCalls} {
		redistest.WantErr(b, s.Load(context.Background(), rdb).Err())
	}
	all := make([]Calls, n)
	for i := range all {
		base := "leasehold:mtx:{calls:key-" + strconv.Itoa(i) + "}:"
		member := "0123456789012345678901." + strconv.Itoa(i) + ".1.30000.1"
		all[i] = Calls{
			keys: []string{base + "holders", base + "queue", base + "alive", base + "fence"},
			take: []any{member, 0, 30000, 1, Now()/1e6 + 3600_000, "0 0"},
			give: []any{member, 0, 0},
		}
	}
	return all
}

func (c *Calls) Take(ctx context.Context, rdb redis.Scripter) *redis.Cmd {
	return rdb.EvalSha(ctx, takeCalls.Hash(), c.keys, c.take...)
}

func (c *Calls) Give(ctx context.Context, rdb redis.Scripter) *redis.Cmd {
	return rdb.EvalSha(ctx, giveCalls.Hash(), c.keys, c.give...)
}
