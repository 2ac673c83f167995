package codec_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// withCodec is the fingerprint of a type whose Codec is the caller's.
func withCodec[T any]() string { return codec.Fingerprint(reflect.TypeFor[T](), true) }

// MessagePack does not say which type is in an interface, and writes no hidden field. So such a
// value would come back as another one, or not at all.
func TestTypesThatDoNotComeBackAreRefused(t *testing.T) {
	type (
		withFunc struct{ F func() }
		hidden   struct{ n int }
		inside   struct {
			Name  string
			Shape fmt.Stringer
		}
		skips struct {
			Name    string
			Skipped fmt.Stringer `msgpack:"-"`
			Also    fmt.Stringer `msgpack:"-,omitempty"`
			shape   fmt.Stringer
		}
	)
	_, _ = hidden{n: 1}, skips{shape: nil}
	for why, want := range map[string]string{
		codec.Unstorable(reflect.TypeFor[withFunc]()):         "T.F is a func()",
		codec.Unstorable(reflect.TypeFor[chan int]()):         "T is a chan int",
		codec.Unstorable(reflect.TypeFor[hidden]()):           "no exported field",
		codec.Unstorable(reflect.TypeFor[any]()):              "T is interface {}",
		codec.Unstorable(reflect.TypeFor[error]()):            "T is the interface error",
		codec.Unstorable(reflect.TypeFor[fmt.Stringer]()):     "T is the interface fmt.Stringer",
		codec.Unstorable(reflect.TypeFor[inside]()):           "T.Shape is the interface fmt.Stringer",
		codec.Unstorable(reflect.TypeFor[[]*inside]()):        "T.Shape is the interface fmt.Stringer,",
		codec.Unstorable(reflect.TypeFor[map[string]error]()): "a value of T is the interface error",
	} {
		redistest.Check(t, strings.Contains(why, strings.TrimSuffix(want, ",")), "it is refused since %q; want %q", why, want)
	}
	for what, why := range map[string]string{
		"a map of pointers to a hidden struct": codec.Unstorable(reflect.TypeFor[map[string]*hidden]()),
		"a time":                               codec.Unstorable(reflect.TypeFor[time.Time]()),
		"a field that is not stored":           codec.Unstorable(reflect.TypeFor[skips]()),
		"an any in a map":                      codec.Unstorable(reflect.TypeFor[map[string]any]()),
		"bytes":                                codec.Unstorable(reflect.TypeFor[[]byte]()),
	} {
		redistest.Check(t, why == "", "%s is refused: %s", what, why)
	}
}

// cents and euros differ in their names only.
type (
	cents struct{ n int64 }
	euros struct{ n int64 }
)

var _, _ = cents{n: 1}, euros{n: 1} // the fields are there to be hidden

// priceInCents and priceInEuros see types that differ in their hidden fields only: both are called price.
func priceInCents() string {
	type price struct{ cents int64 }
	_ = price{cents: 1}
	return withCodec[price]()
}

func priceInEuros() string {
	type price struct{ euros int64 }
	_ = price{euros: 1}
	return withCodec[price]()
}

// With a Codec no version of a type has the fingerprint of another one, if its name or a hidden
// field tells them apart. The same version has.
func TestVersionsOfATypeWithACodec(t *testing.T) {
	type old struct{ Price cents }
	type new struct{ Price euros }
	seen := map[string]string{}
	for what, print := range map[string]string{
		"cents": withCodec[old](), "euros": withCodec[new](),
		"hidden cents": priceInCents(), "hidden euros": priceInEuros(),
		"a time": withCodec[time.Time](), "a duration": withCodec[time.Duration](), "an integer": withCodec[int64](),
	} {
		other, there := seen[print]
		redistest.Check(t, !there, "%s has the fingerprint of %s: %s", what, other, print)
		seen[print] = what
	}
	for _, print := range []func() string{withCodec[old], priceInCents} {
		first, second := print(), print()
		redistest.Check(t, first == second, "a type has the fingerprints %s and %s", first, second)
	}
}

type deepMap map[string]deepMap

// Where a map is wanted, the library reads an extension's content as the map:
// bytes that no check of the data has counted.
func TestExtensionIsNoMap(t *testing.T) {
	const claim = "\xdf\xff\xff\xff\xff"
	for _, x := range []target{
		into[map[string]any](16), into[map[string]int](8), into[map[string]string](16), into[map[int][1024]byte](1024), into[deepMap](16),
	} {
		for _, ext := range []string{
			"\xd7\xff" + claim + "\x00\x00\x00",
			"\xc7\x05\x01" + claim, "\xc8\x00\x05\x01" + claim, "\xc9\x00\x00\x00\x05\x01" + claim,
			"\xd4\x01\xdf", "\xd4\x01\x81", "\xd6\xff\xdf\xff\xff\xff",
			// A map that is really there.
			"\xc7\x04\x01\x81\xa1A\x01",
		} {
			redistest.Require(t, codec.Bounded(ext), nil, "%q: %v", ext)
			used, err := x.decode(ext)
			redistest.Check(t, err != nil && used <= slack, "%s: %q took %d bytes, %v", x.name, ext, used, err)
		}
	}
}

// A list of maps one deep, and in the library's eyes, for which an extension
// before a map belongs to it, one map within another to the end of the list.
func TestExtensionsDoNotNest(t *testing.T) {
	for _, ext := range []string{"\xc7\x00\x01", "\xd4\x80\x81", "\xd4\x01\x81"} {
		data := "\xdc\x13\x88" + ext + strings.Repeat("\x81\xa0"+ext, 4999)
		if ext[2] == '\x81' { // the content is the map's header
			data = "\xdc\x27\x10" + strings.Repeat(ext+"\xa0", 5000)
		}
		err := codec.Unmarshal(data, new([]deepMap))
		redistest.Check(t, err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF), "%q: decoded to the end: %v", ext, err)
	}
	for _, ext := range []string{
		"\xc7\x00\x01", "\xc8\x00\x00\x01", "\xc9\x00\x00\x00\x00\x01", "\xd4\x80\x01", "\xd5\x80\x01\x01", "\xc7\x01\x80\x01",
	} {
		redistest.Check(t, codec.Bounded(ext) != nil, "%q was accepted", ext)
	}
}

// A decoder that takes what it wants instead of what is there doesn't come out of step with what was checked.
func TestCarelessExtensionDecoders(t *testing.T) {
	type careless struct{ A [4]byte }
	read := func(byByte bool) func(*msgpack.Decoder, reflect.Value, int) error {
		return func(dec *msgpack.Decoder, v reflect.Value, _ int) error {
			if byByte {
				_, err := dec.DecodeInterface()
				return err
			}
			return dec.ReadFull(v.Addr().Interface().(*careless).A[:])
		}
	}
	defer msgpack.UnregisterExt(6)
	for _, c := range []struct {
		what   string
		data   string
		byByte bool
		ok     bool
	}{
		{"all", "\x92\xd6\x06aaaa\xc0", false, true},
		{"less than all", "\x92\xc7\x09\x06aaaa\xdf\xff\xff\xff\xff\xc0", false, false},
		{"more than all", "\x92\xd5\x06aa\xcd\x01\x07", false, false},
		{"by the byte", "\x92\xd6\x06\xdf\xff\xff\xff\xc0", true, false},
	} {
		msgpack.RegisterExtDecoder(6, careless{}, read(c.byByte))
		redistest.Expect(t, codec.Bounded(c.data), nil, "%s: %v", c.what)
		var v []any
		err := codec.Unmarshal(c.data, &v)
		redistest.Check(t, (err == nil) == c.ok, "%s: %v, %v", c.what, v, err)
	}
}
