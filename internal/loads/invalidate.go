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
	return r.call(invalidateScript, withNear, ack.words()...).WithText()
}

// Put prepares the call that invalidates and stores a value in the same step. From the server
// time voidFrom (µs) on, the call does nothing.
func (r *Resource) Put(voidFrom int64, v Result, ack Acknowledge) *call.Call {
	words := append([]any{voidFrom, v.Prefix, v.Suffix, call.Milliseconds(v.Keep)}, ack.words()...)
	return r.call(putScript, withNear, words...).WithText()
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

func ReadInvalidate(v []int64, text []string) (Dropped, error) {
	if len(v) < 2 || len(text) < len(v)-3 {
		return Dropped{}, call.Malformed("load invalidate", v)
	}
	return dropped(v[0], v[2:], text), nil
}

func ReadPut(v []int64, text []string) (Dropped, error) {
	const done, void = 1, 6
	if len(v) < 2 || len(text) < len(v)-3 || (v[0] != done && v[0] != void) {
		return Dropped{}, call.Malformed("load put", v)
	}
	d := dropped(v[1], v[2:], text)
	d.Void = v[0] == void
	return d, nil
}

// dropped reads what the replies to an invalidation and a put have in common. v has the rest, and
// how long each of the readers lasts that text begins with; or nothing.
func dropped(at int64, v []int64, text []string) Dropped {
	d := Dropped{At: at}
	if len(v) > 0 {
		d.Rest, v = call.Duration(v[0]), v[1:]
	}
	for i, lasts := range v {
		d.Readers = append(d.Readers, Reader{Handle: text[i], Lasts: call.Duration(lasts)})
	}
	// A text that is no name of a schema was not put there by a script and has no keys.
	for _, name := range text[len(v):] {
		if schema, err := strconv.ParseUint(name, 16, 32); err == nil {
			d.Others = append(d.Others, uint32(schema))
		}
	}
	return d
}
