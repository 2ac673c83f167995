package codec_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
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

type nested struct {
	Next  *nested
	List  []nested
	Named map[string]nested
	Any   any
}

// arrayed is kept as an array, without the names of its fields.
type arrayed struct {
	//lint:ignore U1000 the library looks for it
	_msgpack struct{} `msgpack:",as_array"`
	A        int
	B        []byte
	C        *string
}

// shape has values of an extension.
type shape struct {
	Corner *point
	More   []*point
	Any    any
	Seen   time.Time
	Extra  map[string]any
}

func TestCodecRoundTrip(t *testing.T) {
	msgpack.RegisterExt(5, (*point)(nil))
	defer msgpack.UnregisterExt(5)
	text := "text"
	p := &point{X: -0x2001, Y: -1}
	claim := time.Unix(5, 0xdf<<22) // content that would begin a map of billions
	for _, want := range []any{
		true, 42, int8(-1), uint64(1 << 63), 1.5, "", "text", []byte("\x00\xff"), time.Minute,
		[]string{"a", ""},
		[]int{1, -70000},
		map[string]int{"a": 1},
		map[string]string{"a": "b"},
		map[int]bool{3: true},
		[3]int{1, 2, 3},
		&text, someUser(), slices.Repeat([]user{someUser()}, 1000), strings.Repeat("long", 100_000),
		arrayed{A: 1, B: []byte("b"), C: &text},
		nested{
			Next: &nested{Any: "a"}, List: []nested{{}, {Any: int64(1)}},
			Named: map[string]nested{"n": {Any: map[string]any{"k": true}}},
		},
		map[string]any{"a": []any{nil, "b", int64(-9)}, "b": map[string]any{}},
		time.Unix(1<<33, 5), time.Unix(1, 0), time.Unix(-1, 999),
		map[string]time.Time{"t": claim},
		shape{Corner: p, More: []*point{p, {1, 2}}, Any: p, Seen: claim, Extra: map[string]any{"p": p, "t": claim}},
	} {
		data, err := codec.Marshal(want)
		redistest.Expect(t, err, nil, "%T: %v", want)
		got := reflect.New(reflect.TypeOf(want))
		err = codec.Unmarshal(data, got.Interface())
		redistest.Check(t, err == nil && reflect.DeepEqual(got.Elem().Interface(), want), "%T: %+.80v became %+.80v, %v", want, want, got.Elem(), err)
		plain, _ := msgpack.Marshal(want)
		redistest.Check(t, len(plain) == len(data), "%T: %d bytes; the library writes %d", want, len(data), len(plain))
	}
}

// What Unmarshal would refuse is not written: it would be loaded again each time.
func TestMarshalWritesNothingThatIsRefused(t *testing.T) {
	type interned struct {
		A, B string `msgpack:",intern"`
	}
	for what, v := range map[string]any{
		"interned": interned{"same", "same"}, "raw": msgpack.RawMessage("\x91"), "channel": make(chan int),
	} {
		data, err := codec.Marshal(v)
		redistest.Check(t, err != nil && data == "", "%s: %q, %v", what, data, err)
	}
	redistest.NoError(t, redistest.ErrorOf(codec.Marshal(interned{"one", "two"})))
}

// The library panics at all of these. Unmarshal wants a pointer.
func TestPanicsBecomeErrors(t *testing.T) {
	for _, v := range []any{nil, 1, user{}, (*user)(nil), (*int)(nil), (*string)(nil)} {
		redistest.Check(t, codec.Unmarshal("\x80", v) != nil, "%T was decoded into", v)
	}
	for what, c := range map[string]struct {
		data string
		v    any
	}{
		"a key twice":           {"\x82\xa1A\x01\xa1A\x02", new(struct{ A any })},
		"no time":               {"\x81\xa1A\xc0", new(struct{ A time.Time })},
		"no time in a list":     {"\x91\xc0", new([]time.Time)},
		"an array as a key":     {"\x81\x90\xc0", new(map[any]int)},
		"a number for a method": {"\x81\xa1A\x01", new(struct{ A fmt.Stringer })},
		"a number for an error": {"\x81\xa1A\x01", new(struct{ A error })},
	} {
		err := codec.Unmarshal(c.data, c.v)
		redistest.Check(t, err != nil && strings.Contains(err.Error(), "panicked"), "%s: %v", what, err)
	}
}

// The library's own way would leave a goroutine for each type that a map or a pointer leads to.
func TestUnmarshalLeavesNoGoroutine(t *testing.T) {
	redistest.NoLeaks(t)
	type a struct{ A *int }
	type b struct{ B map[string]a }
	var v b
	err := codec.Unmarshal("\x81\xa1B\x81\xa1k\x81\xa1A\x01", &v)
	redistest.CheckNow(t, err == nil && *v.B["k"].A == 1, "%v, %v", v, err)
}

// A decoder that failed or panicked is not used by another.
func TestManyDecodeAtATime(t *testing.T) {
	want := slices.Repeat([]user{someUser()}, 3)
	data := redistest.Must(codec.Marshal(want))(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				for _, bad := range []string{"\x81\xa1A\x01", "\x91\xc0", "\x91", "\x91\xc1", "\xc7\x05\x01\xdf\xff\xff\xff\xff"} {
					redistest.Check(t, codec.Unmarshal(bad, new([]time.Time)) != nil, "%q was decoded", bad)
				}
				var got []user
				err := codec.Unmarshal(data, &got)
				redistest.Check(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v", got, err)
			}
		})
	}
	wg.Wait()
}

// point is an extension of its own: number 5, four bytes.
type point struct{ X, Y int16 }

func (p *point) MarshalMsgpack() ([]byte, error) {
	return []byte{byte(p.X >> 8), byte(p.X), byte(p.Y >> 8), byte(p.Y)}, nil
}

func (p *point) UnmarshalMsgpack(b []byte) error {
	if len(b) != 4 {
		return errors.New("a point has four bytes")
	}
	p.X, p.Y = int16(b[0])<<8|int16(b[1]), int16(b[2])<<8|int16(b[3])
	return nil
}

// Whatever the data, Unmarshal doesn't panic and takes no more memory than
// the package says; and Bounded knows where a value ends as the library does.
func FuzzUnmarshal(f *testing.F) {
	msgpack.RegisterExt(5, (*point)(nil))
	f.Cleanup(func() { msgpack.UnregisterExt(5) })
	warm()
	for i, v := range append(values, bombs...) {
		f.Add(byte(i), "\x92"+v+"\xc0")
	}
	for i := range targets {
		f.Add(byte(i), "\x92\xd7\xff\xdf\xff\xff\xff\x00\x00\x00\x00\x81\xa0\xc0")
		f.Add(byte(i), "\x92\xd6\x05abcd\x81\xa1X\xd5\x05ab")
		f.Add(byte(i), "\x84\xa4Next\x80\xa4List\x92\x80\xc0\xa5Named\x81\xa1n\x80\xa3Any\x01")
	}
	user, err := codec.Marshal(someUser())
	redistest.WantErr(f, err)
	f.Add(byte(0), user)
	f.Fuzz(func(t *testing.T, target byte, data string) {
		x := targets[int(target)%len(targets)]
		// The fuzzer's own goroutines may have allocated, but not each time.
		for try := 1; ; try++ {
			used, err := x.decode(data)
			if refused := codec.Bounded(data); refused != nil && err == nil {
				t.Errorf("%s: decoded what is refused: %v", x.name, refused)
			} else if refused == nil {
				end(t, data)
			}
			if used <= x.allowed(data) {
				return
			}
			redistest.CheckNow(t, try != 3, "%s: %d bytes took %d; want at most %d", x.name, len(data), used, x.allowed(data))
		}
	})
}

// end checks that the library finds the end of the value where data ends.
func end(t *testing.T, data string) {
	t.Helper()
	r := strings.NewReader(data)
	err := msgpack.NewDecoder(r).Skip()
	redistest.Check(t, err == nil && r.Len() == 0, "the library leaves %d of %d bytes, %v", r.Len(), len(data), err)
}
