package loads

import (
	"strconv"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	invalidateScript = call.NewScript("load invalidate", luascripts.LoadsInvalidate())
	putScript        = call.NewScript("load put", luascripts.LoadsPut())
)

// Invalidate prepares the call that drops the value, and that takes from a running load the
// right to store its result.
func (r *Resource) Invalidate() *call.Call { return r.call(invalidateScript).WithText() }

// Put prepares the call that invalidates and stores a value in the same step. From the server
// time voidFrom (µs) on, the call does nothing.
func (r *Resource) Put(voidFrom int64, v Result) *call.Call {
	return r.call(putScript, voidFrom, v.Prefix, v.Suffix, call.Milliseconds(v.Keep)).WithText()
}

// Dropped is the reply to an invalidation or a put.
type Dropped struct {
	At     int64    // server time, µs
	Void   bool     // the put arrived too late and did nothing
	Others []uint32 // the other schemas of the key that are in use
}

// ReadInvalidate reads the reply to an invalidation.
func ReadInvalidate(v []int64, text []string) (Dropped, error) {
	if len(v) != 2 {
		return Dropped{}, call.Malformed("load invalidate", v)
	}
	return Dropped{At: v[0], Others: schemas(text)}, nil
}

// ReadPut reads the reply to a put.
func ReadPut(v []int64, text []string) (Dropped, error) {
	const done, void = 1, 6
	if len(v) != 2 || (v[0] != done && v[0] != void) {
		return Dropped{}, call.Malformed("load put", v)
	}
	return Dropped{At: v[1], Void: v[0] == void, Others: schemas(text)}, nil
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
