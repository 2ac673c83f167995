package codec

import (
	"errors"
	"io"
)

var errContent = errors.New("msgpack: an extension where a map is wanted, or one whose decoder doesn't read it as a whole")

// span is a part of the data, from a position up to another.
type span struct{ from, to int }

// reader is what the decoder reads from. Where the target is a map and the data
// has an extension, the library takes the content of the extension for the map:
// content that no check has seen, since 0xdf and four bytes that announce
// billions of entries are also a fine timestamp. But every value begins with a
// single byte that is read, while the content of an extension is read as
// a whole, so the reader can refuse the one where the other has to come.
type reader struct {
	data     string
	at       int
	contents []span // of the extensions, rising
}

func (r *reader) Read(p []byte) (int, error) {
	if r.at == len(r.data) {
		return 0, io.EOF
	}
	// Beyond the end of the content no value needs to begin.
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

// within tells where the content of an extension ends, if that is what comes
// next.
func (r *reader) within() (end int, ok bool) {
	for len(r.contents) > 0 && r.contents[0].to <= r.at {
		r.contents = r.contents[1:]
	}
	if len(r.contents) == 0 || r.contents[0].from > r.at {
		return 0, false
	}
	return r.contents[0].to, true
}
