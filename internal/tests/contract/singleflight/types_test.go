package singleflight

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestTypesThatCannotBeEncodedAreRefused(t *testing.T) {
	rdb := nowhere(t)
	type withFunc struct{ F func() }
	type hidden struct{ n int }
	_ = hidden{n: 1}
	refused := func(err error) {
		t.Helper()
		redistest.WantErr(t, err, leasehold.ErrInvalid)
		redistest.WantText(t, err, "T can't be encoded")
	}
	_, err := singleflight.New(rdb, singleflight.Config[withFunc]{Name: "n", TTL: time.Minute})
	refused(err)
	_, err = singleflight.New(rdb, singleflight.Config[chan int]{Name: "n", TTL: time.Minute})
	refused(err)
	_, err = singleflight.New(rdb, singleflight.Config[map[string]*hidden]{Name: "n", TTL: time.Minute})
	if err != nil {
		t.Error(err)
	}
	_, err = singleflight.New(rdb, singleflight.Config[hidden]{Name: "n", TTL: time.Minute})
	refused(err)
	if _, err := singleflight.New(rdb, singleflight.Config[time.Time]{Name: "n", TTL: time.Minute}); err != nil {
		t.Error(err)
	}
}

// newOf makes a group on no server.
func newOf[T any](t *testing.T, codec singleflight.Codec) error {
	t.Helper()
	_, err := singleflight.New(nowhere(t), singleflight.Config[T]{Name: "n", TTL: time.Minute, Codec: codec})
	return err
}

// Msgpack does not say which type is in an interface. So such a value would come back as
// another one, or not at all. A Codec may know more.
func TestTypesThatDoNotComeBackAreRefused(t *testing.T) {
	type inside struct {
		Name  string
		Shape fmt.Stringer
	}
	type hidden struct {
		Name    string
		Skipped fmt.Stringer `msgpack:"-"`
		shape   fmt.Stringer
	}
	_ = hidden{shape: nil}
	for what, c := range map[string]struct {
		err  error
		says []string
	}{
		"any":         {newOf[any](t, nil), []string{"T is interface {}", "want a type", "a Codec"}},
		"an error":    {newOf[error](t, nil), []string{"T is the interface error"}},
		"a Stringer":  {newOf[fmt.Stringer](t, nil), []string{"T is the interface fmt.Stringer"}},
		"in a struct": {newOf[inside](t, nil), []string{"T.Shape is the interface fmt.Stringer"}},
		"in a slice":  {newOf[[]*inside](t, nil), []string{"T.Shape is the interface fmt.Stringer"}},
		"in a map":    {newOf[map[string]error](t, nil), []string{"a value of T is the interface error"}},
	} {
		t.Run(what, func(t *testing.T) {
			redistest.WantErr(t, c.err, leasehold.ErrInvalid)
			redistest.WantText(t, c.err, append(c.says, "T can't be encoded")...)
		})
	}
	for what, err := range map[string]error{
		"any with a Codec": newOf[any](t, &jsonCodec{}), "a Stringer with a Codec": newOf[inside](t, &jsonCodec{}),
		"a field that is not stored": newOf[hidden](t, nil), "an any in a map": newOf[map[string]any](t, nil),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// cents and euros differ in their names and their methods only.
type (
	cents struct{ n int64 }
	euros struct{ n int64 }
)

func (c cents) MarshalJSON() ([]byte, error)  { return json.Marshal(c.n) }
func (c *cents) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &c.n) }
func (e euros) MarshalJSON() ([]byte, error)  { return json.Marshal(e.n) }
func (e *euros) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &e.n) }

// priceInCents and priceInEuros differ in their hidden fields only: both return a type that is
// called price.
func priceInCents(f *fixture) *singleflight.Stats {
	type price struct{ cents int64 }
	return loadWithCodec(f, price{1999})
}

func priceInEuros(f *fixture) *singleflight.Stats {
	type price struct{ euros int64 }
	return loadWithCodec(f, price{19})
}

// loadWithCodec gets v through the cache, and says what that cost.
func loadWithCodec[T comparable](f *fixture, v T) *singleflight.Stats {
	f.Helper()
	g, _ := openOf(f, func(c *singleflight.Config[T]) { c.Codec = &jsonCodec{} })
	if r, err := g.Do(f.Context(), "k", func(context.Context) (T, error) { return v, nil }); err != nil {
		f.Error(r, err)
	}
	s := g.Stats()
	return &s
}

// No version of a type reads what another one wrote, if its name or a hidden field tells them
// apart. The same version does.
func TestVersionsOfATypeWithACodec(t *testing.T) {
	some(t, func(f *fixture) {
		type old struct{ Price cents }
		type new struct{ Price euros }
		for what, s := range map[string]*singleflight.Stats{
			"cents":        loadWithCodec(f, old{cents{1999}}),
			"euros":        loadWithCodec(f, new{euros{19}}),
			"hidden cents": priceInCents(f),
			"hidden euros": priceInEuros(f),
			"a time":       loadWithCodec(f, time.Unix(1, 0)),
			"a duration":   loadWithCodec(f, time.Second),
			"an integer":   loadWithCodec(f, int64(1)),
		} {
			if s.Loads != 1 || s.Hits != 0 {
				f.Errorf("%s: %+v; want a load", what, s)
			}
		}
		for what, s := range map[string]*singleflight.Stats{
			"cents": loadWithCodec(f, old{}), "hidden cents": priceInCents(f), "a time": loadWithCodec(f, time.Time{}),
		} {
			if s.Hits != 1 {
				f.Errorf("%s again: %+v; want a hit", what, s)
			}
		}
	})
}
