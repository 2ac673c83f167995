package harness

import (
	"context"
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
