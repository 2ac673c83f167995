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

// Invalidate prepares the call that drops the value and ends the right of a running
// load to store its result.
func (r *Resource) Invalidate() *call.Call { return r.call(invalidateScript).WithText() }

// Put prepares the call that does so, and stores a value in the same step. It does
// nothing from voidFrom on, a server time in µs.
func (r *Resource) Put(voidFrom int64, v Result) *call.Call {
	return r.call(putScript, voidFrom, v.Prefix, v.Suffix, call.Milliseconds(v.Keep)).WithText()
}

// Dropped is what an invalidation or a put answered.
type Dropped struct {
	At     int64    // server, µs
	Void   bool     // it came after its time, and did nothing
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

// schemas reads the names of schemas. What is no such name was not put there by a
// script, and has no keys.
func schemas(names []string) (all []uint32) {
	for _, name := range names {
		if schema, err := strconv.ParseUint(name, 16, 32); err == nil {
			all = append(all, uint32(schema))
		}
	}
	return all
}
