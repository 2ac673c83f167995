package codec

import (
	"errors"
	"io"
)

var errContent = errors.New("msgpack: an extension where a map is wanted, or one whose decoder doesn't read it as a whole")

type span struct{ from, to int }

// reader is what the decoder reads from. It guards against one flaw of the library: if the target is a map and the
// data has an extension, the library takes the content of the extension for the map. No check has seen this content.
// For example, 0xdf and four bytes that announce billions of entries are also a valid timestamp.
//
// The reader can tell the two cases apart. Every value begins with a single byte that is read
// by itself, whereas the content of an extension is read as a whole. So the reader refuses a
// single-byte read where the content of an extension comes next.
type reader struct {
	data     string
	at       int
	contents []span // the contents of the extensions, in rising order
}

func (r *reader) Read(p []byte) (int, error) {
	if r.at == len(r.data) {
		return 0, io.EOF
	}
	// A decoder that reads an extension as a whole never reads past its content.
	if end, ok := r.within(); ok && len(p) > end-r.at {
		return 0, errContent
	}
	n := copy(p, r.data[r.at:])
	r.at += n
	return n, nil
}

func (r *reader) ReadByte() (byte, error) {
	if r.at == len(r.data) {
		return 0, io.EOF
	}
	if _, ok := r.within(); ok {
		return 0, errContent
	}
	r.at++
	return r.data[r.at-1], nil
}

func (r *reader) UnreadByte() error {
	if r.at == 0 {
		return errors.New("msgpack: nothing was read")
	}
	r.at--
	return nil
}

// within returns the end of an extension's content, if the next byte belongs to such a content.
func (r *reader) within() (end int, ok bool) {
	for len(r.contents) > 0 && r.contents[0].to <= r.at {
		r.contents = r.contents[1:]
	}
	if len(r.contents) == 0 || r.contents[0].from > r.at {
		return 0, false
	}
	return r.contents[0].to, true
}
