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

// What the package says of the memory that Unmarshal takes.
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

// decode decodes data into x, and returns how many bytes that takes from the heap.
func (x target) decode(data string) (used uint64, err error) {
	v := x.into()
	used = allocated(func() { err = codec.Unmarshal(data, v) })
	return used, err
}

// allowed is how many bytes decode may take.
func (x target) allowed(data string) uint64 {
	return uint64(len(data))*(perElement*x.element+perByte) + slack
}

// warm lets the library look at the types, which it does once.
func warm() {
	for _, x := range targets {
		for _, v := range values {
			_ = codec.Unmarshal(v, x.into())
		}
	}
}

func TestBombsTakeNoMemory(t *testing.T) {
	warm()
	for _, bomb := range bombs {
		for _, data := range wrapped(bomb) {
			redistest.Check(t, codec.Bounded(data) != nil, "%q was accepted", data)
			for _, x := range targets {
				used, err := x.decode(data)
				redistest.Check(t, err != nil && used <= slack, "%s: %q took %d bytes, %v", x.name, data, used, err)
			}
		}
	}
}

// The worst that whole values can do.
func TestMemoryIsInProportion(t *testing.T) {
	warm()
	const n, count = 1000, "\x03\xe8"
	for _, element := range append(values, "\x81\xa1A\x90", "\x81\xa1A\xc0", "\x81\xa4Next\x80", "\x81\xa4List\x91\x80", "\x81\x00\x00",
		"\x82\xa0\x80\xa0\x80", "\x81\xc4\x00\xc4\x00", "\x83\xa1B\xc4\x01x\xa1B\xc4\x02xx\xa1B\xc4\x03xxx",
		"\x93\x01\xc0\xa0", "\x98\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0", "\x99\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0") {
		array, mapped := "\xdc"+count+strings.Repeat(element, n), "\xde"+count+strings.Repeat("\xa0"+element, n)
		for _, data := range []string{array, mapped} {
			for _, x := range targets {
				used, err := x.decode(data)
				redistest.Check(t, used <= x.allowed(data), "%s: %d bytes, of %q, took %d (%v)", x.name, len(data), element, used, err)
			}
		}
	}
}

// One value of every code, as long as it can be with little.
var values = []string{
	"\x00", "\x7f", "\xe0", "\xff", "\xc0", "\xc2", "\xc3",
	"\xcc\x01", "\xcd\x01\x02", "\xce\x01\x02\x03\x04", "\xcf\x01\x02\x03\x04\x05\x06\x07\x08",
	"\xd0\x01", "\xd1\x01\x02", "\xd2\x01\x02\x03\x04", "\xd3\x01\x02\x03\x04\x05\x06\x07\x08",
	"\xca\x01\x02\x03\x04", "\xcb\x01\x02\x03\x04\x05\x06\x07\x08",
	"\xa0", "\xa1a", "\xbf" + strings.Repeat("a", 31),
	"\xd9\x00", "\xd9\x01a", "\xda\x00\x01a", "\xdb\x00\x00\x00\x01a",
	"\xc4\x00", "\xc4\x01a", "\xc5\x00\x01a", "\xc6\x00\x00\x00\x01a",
	"\x90", "\x91\xc0", "\x9f" + strings.Repeat("\xc0", 15),
	"\xdc\x00\x00", "\xdc\x00\x01\xc0", "\xdd\x00\x00\x00\x00", "\xdd\x00\x00\x00\x01\xc0",
	"\x80", "\x81\xa0\xc0", "\x8f" + strings.Repeat("\xa0\xc0", 15),
	"\xde\x00\x00", "\xde\x00\x01\xa0\xc0", "\xdf\x00\x00\x00\x00", "\xdf\x00\x00\x00\x01\xa0\xc0",
	"\xd4\x01a", "\xd5\x01aa", "\xd6\x01aaaa", "\xd7\x01aaaaaaaa", "\xd8\x01aaaaaaaaaaaaaaaa",
	"\xc7\x03\x01aaa", "\xc8\x00\x03\x01aaa", "\xc9\x00\x00\x00\x03\x01aaa",
}

// Bounded accepts a value of every code, wherever it stands, and nothing less or more.
func TestBoundedAcceptsOneValueOnly(t *testing.T) {
	for _, v := range values {
		for _, data := range []string{v, "\x91" + v, "\x92" + v + v, "\x81" + v + v, "\x93\x91" + v + "\x90" + v} {
			redistest.Expect(t, codec.Bounded(data), nil, "%q: %v", data)
			for n := range len(data) {
				redistest.Check(t, codec.Bounded(data[:n]) != nil, "%q, cut short from %q, was accepted", data[:n], data)
			}
			for _, more := range []string{"\xc0", "\x00", v} {
				redistest.Check(t, codec.Bounded(data+more) != nil, "%q with %q behind it was accepted", data, more)
			}
		}
	}
}

// bombs are a few bytes each that claim to be much.
var bombs = []string{
	"\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff", "\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff",
	"\xc9\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x01", "\xc9\xff\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x80",
	"\xdb\x7f\xff\xff\xff", "\xc6\x7f\xff\xff\xff", "\xdd\x7f\xff\xff\xff", "\xdf\x7f\xff\xff\xff", "\xdf\x80\x00\x00\x00",
	"\xda\xff\xff", "\xc5\xff\xff", "\xdc\xff\xff", "\xde\xff\xff", "\xc8\xff\xff\x01",
	"\xd9\xff", "\xc4\xff", "\xc7\xff\x01", "\x9f", "\x8f", "\xbf", "\xd8\x01",
	"\xdd\x00\x00\x00\x02\xc0", "\xdf\x00\x00\x00\x01\xa0", "\xdf\x00\x00\x00\x02\xa0\xc0\xa0", "\xc1", "",
}

// wrapped is a bomb among real values, as deep as real values are.
func wrapped(bomb string) []string {
	deep := strings.Repeat("\x91", 100) + bomb
	return []string{
		bomb, "\x91" + bomb, "\x81\xa1A" + bomb, "\x81" + bomb + "\xc0", deep,
		"\x92\xc0" + bomb, "\x92" + bomb + "\xc0", strings.Repeat("\x81\xa1A", 100) + bomb,
		// Each of the outer ones claims what only the inner ones have.
		strings.Repeat("\xdc\x00\x08", 10) + bomb + strings.Repeat("\xc0", 20),
	}
}

func TestDepthIsBounded(t *testing.T) {
	for what, level := range map[string]string{
		"array": "\x91", "array16": "\xdc\x00\x01", "array32": "\xdd\x00\x00\x00\x01",
		"map": "\x81\xa0", "map16": "\xde\x00\x01\xa0", "map32": "\xdf\x00\x00\x00\x01\xa0",
	} {
		redistest.Expect(t, codec.Bounded(strings.Repeat(level, 512)+"\xc0"), nil, "%s: 512 deep: %v", what)
		for _, n := range []int{513, 1_000_000} {
			err := codec.Bounded(strings.Repeat(level, n) + "\xc0")
			redistest.Check(t, err != nil && strings.Contains(err.Error(), "512 deep"), "%s: %d deep: %v", what, n, err)
		}
	}
	redistest.Check(t, codec.Bounded(strings.Repeat("\x81", 513)+strings.Repeat("\xc0", 514)) != nil,
		"a map as the key of a map, 513 deep, was accepted")
	redistest.Expect(t, codec.Bounded("\xdc\x03\xe8"+strings.Repeat("\x90", 1000)), nil, "1000 side by side: %v")
}
