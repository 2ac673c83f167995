package singleflight

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/codec"
)

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
		if !strings.Contains(why, strings.TrimSuffix(want, ",")) {
			t.Errorf("it is refused since %q; want %q", why, want)
		}
	}
	for what, why := range map[string]string{
		"a map of pointers to a hidden struct": codec.Unstorable(reflect.TypeFor[map[string]*hidden]()),
		"a time":                               codec.Unstorable(reflect.TypeFor[time.Time]()),
		"a field that is not stored":           codec.Unstorable(reflect.TypeFor[skips]()),
		"an any in a map":                      codec.Unstorable(reflect.TypeFor[map[string]any]()),
		"bytes":                                codec.Unstorable(reflect.TypeFor[[]byte]()),
	} {
		if why != "" {
			t.Errorf("%s is refused: %s", what, why)
		}
	}
}

// cents and euros differ in their names and their methods only.
type (
	cents struct{ n int64 }
	euros struct{ n int64 }
)

func (c cents) MarshalJSON() ([]byte, error) { return json.Marshal(c.n) }
func (e euros) MarshalJSON() ([]byte, error) { return json.Marshal(e.n) }

type ownCodec struct{ Codec }

// priceInCents and priceInEuros see types that differ in their hidden fields only: both are
// called price.
func priceInCents() uint32 {
	type price struct{ cents int64 }
	return schemaOf[price](ownCodec{})
}

func priceInEuros() uint32 {
	type price struct{ euros int64 }
	return schemaOf[price](ownCodec{})
}

// With a Codec no version of a type has the schema of another one, if its name or a hidden
// field tells them apart. The same version has.
func TestVersionsOfATypeWithACodec(t *testing.T) {
	type old struct{ Price cents }
	type new struct{ Price euros }
	seen := map[uint32]string{}
	for what, schema := range map[string]uint32{
		"cents": schemaOf[old](ownCodec{}), "euros": schemaOf[new](ownCodec{}),
		"hidden cents": priceInCents(), "hidden euros": priceInEuros(),
		"a time": schemaOf[time.Time](ownCodec{}), "a duration": schemaOf[time.Duration](ownCodec{}), "an integer": schemaOf[int64](ownCodec{}),
	} {
		if other, there := seen[schema]; there || schema == 0 {
			t.Errorf("%s has the schema of %s, %d", what, other, schema)
		}
		seen[schema] = what
	}
	if schemaOf[old](ownCodec{}) != schemaOf[old](ownCodec{}) || priceInCents() != priceInCents() {
		t.Error("a type has two schemas")
	}
	if schemaOf[string](nil) != 0 || schemaOf[[]byte](nil) != 0 || schemaOf[string](ownCodec{}) == 0 {
		t.Error("what is stored as it is has a schema, or what a Codec writes has none")
	}
}
