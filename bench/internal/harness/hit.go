package harness

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/vmihailenco/msgpack/v5"
)

// BareHit stores v and is a GET and decode of it: the floor of a cache's hit.
func BareHit[T any](b testing.TB, rdb *redis.Client, v T) func() error {
	b.Helper()
	ctx := context.Background()
	packed, err := msgpack.Marshal(v)
	if err != nil {
		b.Fatal(err)
	}
	if err := rdb.Set(ctx, "bare", packed, 0).Err(); err != nil {
		b.Fatal(err)
	}
	return func() error {
		data, err := rdb.Get(ctx, "bare").Bytes()
		if err != nil {
			return err
		}
		var v T
		return msgpack.Unmarshal(data, &v)
	}
}
