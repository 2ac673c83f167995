// Package codec turns values into bytes and back: MessagePack, with bounds on what the
// bytes can make it allocate.
package codec

import (
	"fmt"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// Msgpack is the default codec: MessagePack, as vmihailenco/msgpack writes it,
// with its struct tags but for "intern". It trusts nothing that it decodes.
//
// What Unmarshal allocates is in proportion to the data: an element of a slice,
// a value of a map and what a pointer leads to can come from a single byte (nil,
// or an empty map), so with S the size of the largest of them in the target's
// type, it is at most 64 KiB and, for each byte, 3·S and 1 KiB. Nearly all data
// needs a small part of that. A caller that can't bear it bounds the length of the data.
//
// A type's own methods (DecodeMsgpack, UnmarshalMsgpack and so on) and
// extensions that are registered with the library run as they are. An extension
// must be read as a whole: msgpack.RegisterExt does so. For a struct that is
// embedded by pointer the library keeps, from its first decoding on, a goroutine
// and some 256 empty ones of it for good.
type Msgpack struct{}

// maxPooled is the longest data, in bytes, after which what decoded it is used
// again: its buffers have grown with the data.
const maxPooled = 1 << 20

// decoding is one use of the library's decoder.
type decoding struct {
	dec      *msgpack.Decoder
	in       reader
	contents []span
}

// The library has a pool too, and msgpack.Unmarshal uses it, but that starts
// a goroutine per type that never ends, and takes decoders back in any state.
var decodings = sync.Pool{New: func() any { return &decoding{dec: msgpack.NewDecoder(nil)} }}

// Marshal encodes v, which must not contain itself. It gives no data that
// Unmarshal would refuse: that would be stored and never be of use.
func (Msgpack) Marshal(v any) ([]byte, error) {
	data, err := msgpack.Marshal(v)
	if err != nil {
		return nil, err
	}
	if err := Bounded(data); err != nil {
		return nil, err
	}
	return data, nil
}

// Unmarshal decodes data, which must be Bounded, into what v points to, which
// shares no memory with data. Where it fails it may have set a part of v.
func (m Msgpack) Unmarshal(data []byte, v any) error { return m.UnmarshalString(string(data), v) }

// UnmarshalString is Unmarshal of a string, which it doesn't copy.
func (Msgpack) UnmarshalString(data string, v any) (err error) {
	d := decodings.Get().(*decoding)
	d.contents, err = walk(data, d.contents[:0])
	if err == nil {
		err = d.decode(data, v)
	}
	// A decoder that failed halfway may still be recording what it reads.
	if err == nil && len(data) <= maxPooled {
		decodings.Put(d)
	}
	return err
}

// decode lets the library decode. It panics where data and type don't fit in
// some ways, such as a nil for a time.Time or a slice as the key of a map.
func (d *decoding) decode(data string, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("msgpack: decoding panicked: %v", p)
		}
	}()
	d.in = reader{data: data, contents: d.contents}
	d.dec.Reset(&d.in)
	err = d.dec.Decode(v)
	d.in = reader{}
	return err
}
