package codec_test

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Whatever the data, Unmarshal doesn't panic and takes no more memory than
// Msgpack says; and Bounded knows where a value ends as the library does.
func FuzzUnmarshal(f *testing.F) {
	msgpack.RegisterExt(5, (*point)(nil))
	f.Cleanup(func() { msgpack.UnregisterExt(5) })
	warm()
	for i, v := range append(values, bombs...) {
		f.Add(byte(i), []byte("\x92"+v+"\xc0"))
	}
	for i := range targets {
		f.Add(byte(i), []byte("\x92\xd7\xff\xdf\xff\xff\xff\x00\x00\x00\x00\x81\xa0\xc0"))
		f.Add(byte(i), []byte("\x92\xd6\x05abcd\x81\xa1X\xd5\x05ab"))
		f.Add(byte(i), []byte("\x84\xa4Next\x80\xa4List\x92\x80\xc0\xa5Named\x81\xa1n\x80\xa3Any\x01"))
	}
	user, err := codec.Msgpack{}.Marshal(someUser())
	redistest.WantErr(f, err)
	f.Add(byte(0), user)
	f.Fuzz(func(t *testing.T, target byte, data []byte) {
		x := targets[int(target)%len(targets)]
		allowed := uint64(len(data))*(perElement*x.element+perByte) + slack
		// The fuzzer's own goroutines may have allocated, but not each time.
		for try := 1; ; try++ {
			var err error
			v := x.into()
			used := allocated(func() { err = codec.Msgpack{}.Unmarshal(data, v) })
			if refused := codec.Bounded(data); refused != nil && err == nil {
				t.Errorf("%s: decoded what is refused: %v", x.name, refused)
			} else if refused == nil {
				end(t, data)
			}
			if used <= allowed {
				return
			}
			redistest.CheckNow(t, try != 3, "%s: %d bytes took %d; want at most %d", x.name, len(data), used, allowed)
		}
	})
}

// end checks that the library finds the end of the value where data ends.
func end(t *testing.T, data []byte) {
	t.Helper()
	r := bytes.NewReader(data)
	err := msgpack.NewDecoder(r).Skip()
	redistest.Check(t, err == nil && r.Len() == 0, "the library leaves %d of %d bytes, %v", r.Len(), len(data), err)
}
