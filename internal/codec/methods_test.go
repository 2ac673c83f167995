package codec_test

import (
	"encoding"
	"errors"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

type (
	written struct{ A int }    // has a method that encodes it alone
	parsed  struct{ A int }    // has a method that decodes it alone
	masked  string             // is written as another string
	part    struct{ A, B int } // its methods are those of no embedded field
	dated   struct {
		time.Time
		N int
	}
	sized[T any] struct {
		time.Time
		V T
	}
	halfDated struct {
		time.Time
		N int
	}
	notExported int
)

func (written) MarshalText() ([]byte, error)           { return []byte("text"), nil }
func (*parsed) UnmarshalText([]byte) error             { return errors.ErrUnsupported }
func (masked) MarshalText() ([]byte, error)            { return []byte("***"), nil }
func (dated) MarshalBinary() ([]byte, error)           { return []byte("text"), nil }
func (*dated) UnmarshalBinary([]byte) error            { return nil }
func (*sized[T]) MarshalBinary() ([]byte, error)       { return []byte("text"), nil }
func (*sized[T]) UnmarshalBinary([]byte) error         { return nil }
func (halfDated) MarshalText() ([]byte, error)         { return []byte("text"), nil }
func (halfDated) UnmarshalText([]byte) error           { return nil }
func (halfDated) MarshalBinary() (all []byte, e error) { return []byte("text"), nil }

// A struct has the methods of a field that it embeds. With these the library writes that field alone.
func TestTypesWhoseMethodsDoNotBringThemBackAreRefused(t *testing.T) {
	type (
		event struct {
			time.Time
			Name string
		}
		around  struct{ event }
		price   struct{ *big.Int }
		unknown struct{ encoding.TextMarshaler }
		hidden  struct{ *part }
		number  struct{ notExported }
		alone   struct{ time.Time }
		address struct {
			netip.Addr
			skipped int
		}
		clashing struct {
			time.Time
			netip.Addr
		}
		shown struct{ part }
	)
	type linked struct{ Where url.URL } // url.URL is encoded by a method of *url.URL
	_, _ = hidden{part: &part{}}, number{notExported: 1}
	_, _ = shown{part: part{}}, address{skipped: 1}
	for why, want := range map[string]string{
		codec.Unstorable(reflect.TypeFor[written]()):                     "none that decodes it",
		codec.Unstorable(reflect.TypeFor[map[string]*parsed]()):          "none that encodes it",
		codec.Unstorable(reflect.TypeFor[event]()):                       "T is codec_test.event, with the methods of the embedded Time",
		codec.Unstorable(reflect.TypeFor[[]around]()):                    "T.event is codec_test.event, with the methods",
		codec.Unstorable(reflect.TypeFor[price]()):                       "of the embedded Int",
		codec.Unstorable(reflect.TypeFor[struct{ P *halfDated }]()):      "T.P is codec_test.halfDated, with the methods",
		codec.Unstorable(reflect.TypeFor[unknown]()):                     "none that decodes it",
		codec.Unstorable(reflect.TypeFor[hidden]()):                      "T.part is embedded and not exported",
		codec.Unstorable(reflect.TypeFor[map[string]struct{ number }]()): "notExported is embedded and not exported",
		codec.Unstorable(reflect.TypeFor[struct {
			A linked
			B map[string][1]linked
		}]()): "a value of T.B.Where is url.URL, which only a method of a pointer",
	} {
		redistest.Check(t, strings.Contains(why, want), "it is refused since %q; want %q", why, want)
	}
	for what, why := range map[string]string{
		"a text with a method that encodes it":     codec.Unstorable(reflect.TypeFor[masked]()),
		"a struct with methods of its own":         codec.Unstorable(reflect.TypeFor[dated]()),
		"a generic struct with methods of its own": codec.Unstorable(reflect.TypeFor[[]sized[string]]()),
		"a map of pointers":                        codec.Unstorable(reflect.TypeFor[map[string]*linked]()),
		"a map of slices":                          codec.Unstorable(reflect.TypeFor[map[string][]linked]()),
		"an embedded time and nothing else":        codec.Unstorable(reflect.TypeFor[alone]()),
		"an embedded address and a hidden field":   codec.Unstorable(reflect.TypeFor[address]()),
		"an embedded struct that is not exported":  codec.Unstorable(reflect.TypeFor[shown]()),
		"two embedded types with the same methods": codec.Unstorable(reflect.TypeFor[clashing]()),
	} {
		redistest.Check(t, why == "", "%s is refused: %s", what, why)
	}
}
