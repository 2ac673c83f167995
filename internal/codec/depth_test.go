package codec

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

type node struct {
	Next   *node
	parent *node
	Hidden *node `msgpack:"-"`
}

type (
	pointer   *pointer
	list      []list
	dictMap   map[string]dictMap
	embedding struct {
		*embedding
		Name string
	}
	tree struct {
		base
		Children []any
	}
	base struct{ At time.Time }
)

func chain(n int) (first *node) {
	for range n {
		first = &node{Next: first}
	}
	return first
}

// A value that contains itself, in whichever way, is an error: the stack's overflow would end the process. What is not
// encoded may contain itself, and what is as deep as can be decoded is encoded.
func TestDepthOfValues(t *testing.T) {
	ring := &node{}
	ring.Next = &node{Next: ring}
	var p pointer
	p = &p
	l := list{nil}
	l[0] = l
	d := dictMap{}
	d["d"] = d
	e := &embedding{Name: "e"}
	e.embedding = e
	anys := []any{nil}
	anys[0] = map[string]any{"a": &anys}
	in := &tree{}
	in.Children = []any{1, in}
	var self any
	self = &self
	n, shared := &node{}, &node{}
	n.parent, n.Hidden = n, n
	deep := any(1)
	for range maxDepth {
		deep = []any{deep}
	}
	for want, values := range map[error]map[string]any{
		errDeep: {
			"a ring": ring, "a pointer": &p, "a slice": l, "a map": d, "an embedded pointer": e, "interfaces": anys,
			"a child": in, "an interface": self, "in a slice": []*node{ring}, "too long a chain": chain(maxDepth + 1),
		},
		nil: {
			"hidden fields": n, "a chain": chain(maxDepth), "interfaces": deep, "the same twice": []*node{shared, shared},
			"nil": nil, "a nil pointer": (*node)(nil), "embedded": tree{Children: []any{tree{}, nil}},
		},
	} {
		for name, v := range values {
			data, err := Marshal(v)
			if err == nil {
				err = Bounded(data)
			}
			redistest.Check(t, errors.Is(err, want), "%s: %v", name, err)
		}
	}
}
