// Package codec turns values into bytes and back. It uses MessagePack as vmihailenco/msgpack writes it, with its struct
// tags except "intern", and bounds how much memory the bytes can make it allocate.
//
// Unmarshal allocates memory in proportion to the data. An element of a slice, a value of a map and the target of a
// pointer can each come from a single byte (nil, or an empty map). If S is the size of the largest of them in the
// target's type, Unmarshal allocates at most 64 KiB, and for each byte of data 3·S and 1 KiB. Nearly all data needs
// only a small part of that. A caller that cannot afford it must bound the length of the data.
//
// A type's own methods (DecodeMsgpack, UnmarshalMsgpack and so on) and extensions that are
// registered with the library run as they are. An extension must be read as a whole, as
// msgpack.RegisterExt does. If a struct is embedded by pointer, the library starts a goroutine
// when it first decodes it, and keeps that goroutine and some 256 empty structs for ever.
package codec

import (
	"fmt"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// maxPooled bounds the data, in bytes, after which a decoder is reused. Its buffers have grown with the data.
const maxPooled = 1 << 20

type decoding struct {
	dec      *msgpack.Decoder
	in       reader
	contents []span
}

// The library has a pool too, which msgpack.Unmarshal uses. But that starts a goroutine per
// type that never ends, and reuses decoders whatever state they are in.
var decodings = sync.Pool{New: func() any { return &decoding{dec: msgpack.NewDecoder(nil)} }}

// Marshal encodes v. It returns an error if v contains itself, and instead of data that
// Unmarshal would refuse, because such data would be stored in vain.
func Marshal(v any) (string, error) {
	if err := CheckDepth(v); err != nil {
		return "", err
	}
	b, err := msgpack.Marshal(v)
	if err != nil {
		return "", err
	}
	data := string(b)
	if err := Bounded(data); err != nil {
		return "", err
	}
	return data, nil
}

// Unmarshal decodes data, which must be Bounded, into *v. If Unmarshal fails, it may have set a part of *v.
func Unmarshal(data string, v any) (err error) {
	d := decodings.Get().(*decoding)
	d.contents, err = walk(data, d.contents[:0])
	if err == nil {
		err = d.decode(data, v)
	}
	// A decoder that failed halfway is not reused, because it may still be recording its input.
	if err == nil && len(data) <= maxPooled {
		decodings.Put(d)
	}
	return err
}

// decode lets the library decode, and turns a panic into an error. The library panics for some
// combinations of data and type, such as nil for a time.Time or a slice as the key of a map.
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
