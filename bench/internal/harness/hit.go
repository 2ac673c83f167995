package harness

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

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
