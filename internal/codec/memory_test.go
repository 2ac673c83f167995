package codec_test

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// What Msgpack says of the memory that Unmarshal takes.
const (
	slack      = 64 << 10
	perByte    = 1 << 10
	perElement = 3 // times its size, for each byte
)

type large struct{ A [128]int64 }

// largeMap has the largest keys and values that a map of Go keeps in itself.
type largeMap map[[128]byte][128]byte

// target is what the tests decode into, with the size of its largest element.
type target struct {
	name    string
	element uint64
	into    func() any
}

func into[T any](element uint64) target {
	return target{reflect.TypeFor[T]().String(), element, func() any { return new(T) }}
}

var targets = []target{
	into[any](16), into[[]any](16), into[[]int](8), into[[]string](16), into[[][]string](24),
	into[map[string]int](8), into[map[string]string](16), into[map[string]any](16), into[map[any]any](16),
	into[map[string]large](1024), into[[]largeMap](128), into[string](0), into[[]byte](0), into[[16]byte](0),
	into[user](16), into[[]large](1024), into[[]*large](1024), into[**large](1024), into[[][]large](1024),
	into[nested](64), into[deepMap](16), into[[]deepMap](16), into[time.Time](0), into[[]time.Time](24),
	into[time.Duration](0), into[[]*point](4), into[[]msgpack.RawMessage](24), into[arrayed](16),
	into[float64](0), into[bool](0),
}

// allocated is how many bytes fn takes from the heap. What else runs meanwhile
// counts too, so tests that ask don't run beside others.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// warm lets the library look at the types, which it does once.
func warm() {
	for _, x := range targets {
		for _, v := range values {
			_ = codec.Msgpack{}.Unmarshal([]byte(v), x.into())
		}
	}
}

func TestBombsTakeNoMemory(t *testing.T) {
	warm()
	for _, bomb := range bombs {
		for _, data := range wrapped(bomb) {
			redistest.Check(t, codec.Bounded([]byte(data)) != nil, "%q was accepted", data)
			for _, x := range targets {
				in, v := []byte(data), x.into()
				if used := allocated(func() {
					if err := (codec.Msgpack{}).Unmarshal(in, v); err == nil {
						t.Errorf("%s: %q was decoded", x.name, data)
					}
				}); used > slack {
					t.Errorf("%s: %q took %d bytes", x.name, data, used)
				}
			}
		}
	}
}

// The worst that whole values can do.
func TestMemoryIsInProportion(t *testing.T) {
	warm()
	const n, count = 1000, "\x03\xe8"
	worst := map[string]float64{}
	for _, element := range append(values, "\x81\xa1A\x90", "\x81\xa1A\xc0", "\x81\xa4Next\x80", "\x81\xa4List\x91\x80", "\x81\x00\x00",
		"\x82\xa0\x80\xa0\x80", "\x81\xc4\x00\xc4\x00", "\x83\xa1B\xc4\x01x\xa1B\xc4\x02xx\xa1B\xc4\x03xxx",
		"\x93\x01\xc0\xa0", "\x98\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0", "\x99\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0") {
		array, mapped := "\xdc"+count+strings.Repeat(element, n), "\xde"+count+strings.Repeat("\xa0"+element, n)
		for _, data := range [][]byte{[]byte(array), []byte(mapped)} {
			for _, x := range targets {
				var err error
				v := x.into()
				used := allocated(func() { err = codec.Msgpack{}.Unmarshal(data, v) })
				if allowed := uint64(len(data))*(perElement*x.element+perByte) + slack; used > allowed {
					t.Errorf("%s: %d bytes, of %q, took %d (%v)", x.name, len(data), element, used, err)
				}
				worst[x.name] = max(worst[x.name], float64(used)/float64(len(data)))
			}
		}
	}
	for _, x := range targets {
		t.Logf("%-21s %8.1f for each byte, elements of %d", x.name, worst[x.name], x.element)
	}
}
