package codec_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// user is a value as small as those that many caches are full of.
type user struct {
	ID      int64
	Name    string
	Email   string
	Active  bool
	Score   float64
	Created time.Time
	Roles   []string
}

func someUser() user {
	return user{
		ID: 4711, Name: "Ada Lovelace", Email: "ada@example.com", Active: true, Score: 0.5,
		Created: time.Unix(1_700_000_000, 123_000_000), Roles: []string{"admin", "author"},
	}
}

// What the checks cost: the library's decoder without them, the codec, and the
// checks alone. msgpack.Unmarshal makes values ahead, in goroutines.
func BenchmarkUnmarshal(b *testing.B) {
	dec := msgpack.NewDecoder(nil)
	ways := []struct {
		name      string
		unmarshal func([]byte, any) error
	}{
		{"unchecked", func(data []byte, v any) error { dec.Reset(bytes.NewReader(data)); return dec.Decode(v) }},
		{"library", msgpack.Unmarshal},
		{"codec", codec.Msgpack{}.Unmarshal},
		{"checks", func(data []byte, _ any) error { return codec.Bounded(data) }},
	}
	for _, n := range []int{1, 100} {
		data := redistest.Must(msgpack.Marshal(repeat(someUser(), n)))(b)
		for _, way := range ways {
			b.Run(fmt.Sprintf("%dusers/%s", n, way.name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(data)))
				var v []user
				for b.Loop() {
					redistest.WantErr(b, way.unmarshal(data, &v))
				}
			})
		}
	}
}

func repeat[T any](v T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}
