package codec_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// withCodec is the fingerprint of a type whose Codec is the caller's.
func withCodec[T any]() string { return codec.Fingerprint(reflect.TypeFor[T](), true) }

// Msgpack does not say which type is in an interface, and writes no hidden field. So such a
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
