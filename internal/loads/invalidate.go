package loads

import (
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	invalidateScript = call.NewScript("load invalidate", luascripts.LoadsInvalidate())
	putScript        = call.NewScript("load put", luascripts.LoadsPut())
)

// Invalidate prepares the call that drops the value, and that takes from a running load the
// right to store its result. ack says where readers acknowledge that they dropped their copies.
func (r *Resource) Invalidate(ack Acknowledge) *call.Call {
	return r.callNear(invalidateScript, ack.words()...).WithText()
}

// Put prepares the call that invalidates and stores a value in the same step. From the server
// time voidFrom (µs) on, the call does nothing.
func (r *Resource) Put(voidFrom int64, v Result, ack Acknowledge) *call.Call {
	words := append([]any{voidFrom, v.Prefix, v.Suffix, call.Milliseconds(v.Keep)}, ack.words()...)
	return r.callNear(putScript, words...).WithText()
}

// Acknowledge says where the readers of a value acknowledge that they dropped their copies. The
// zero Acknowledge: nobody listens, and the reply only lists them.
type Acknowledge struct {
	Number string // of the call
	Handle string // listens, and is no reader itself
}

func (a Acknowledge) words() []any {
	if a.Number == "" {
		return nil
	}
	return []any{a.Number, a.Handle}
}

// Dropped is the reply to an invalidation or a put.
type Dropped struct {
	At      int64         // server time, µs
	Void    bool          // the put arrived too late and did nothing
	Others  []uint32      // the other schemas of the key that are in use
	Readers []Reader      // the processes that may serve a copy of what was dropped
	Rest    time.Duration // how long further ones may, which are not listed
}

// Reader is a handle that may serve a copy of a value from its memory.
type Reader struct {
	Handle string
	Lasts  time.Duration // how long it may, from the moment at which the script ran
}

// read reads the part that the replies to an invalidation and a put have in common: the
// integers from the third on, and the texts.
func (d *Dropped) read(v []int64, text []string) bool {
	if len(v) == 0 {
		d.Others = schemas(text)
		return true
	}
	d.Rest = call.Duration(v[0])
	if v = v[1:]; len(text) < len(v) {
		return false
	}
	for i, lasts := range v {
		d.Readers = append(d.Readers, Reader{Handle: text[i], Lasts: call.Duration(lasts)})
	}
	d.Others = schemas(text[len(v):])
	return true
}

// ReadInvalidate reads the reply to an invalidation.
func ReadInvalidate(v []int64, text []string) (Dropped, error) {
	if len(v) < 2 {
		return Dropped{}, call.Malformed("load invalidate", v)
	}
	d := Dropped{At: v[0]}
	if !d.read(v[2:], text) {
		return Dropped{}, call.Malformed("load invalidate", v)
	}
	return d, nil
}

// ReadPut reads the reply to a put.
func ReadPut(v []int64, text []string) (Dropped, error) {
	const done, void = 1, 6
	if len(v) < 2 || (v[0] != done && v[0] != void) {
		return Dropped{}, call.Malformed("load put", v)
	}
	d := Dropped{At: v[1], Void: v[0] == void}
	if !d.read(v[2:], text) {
		return Dropped{}, call.Malformed("load put", v)
	}
	return d, nil
}

// schemas reads the names of schemas. A text that is not such a name was not put there by a
// script and has no keys, so it is skipped.
func schemas(names []string) (all []uint32) {
	for _, name := range names {
		if schema, err := strconv.ParseUint(name, 16, 32); err == nil {
			all = append(all, uint32(schema))
		}
	}
	return all
}
