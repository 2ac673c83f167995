package codec

import (
	"errors"
	"fmt"
)

// maxDepth bounds how many arrays and maps may enclose a value. The decoder recurses for each
// of them, and a stack overflow would end the process. No real value comes near this bound.
const maxDepth = 512

// internedString is the extension with which the library refers to a string that came before.
const internedString = -128

var (
	errEnds     = errors.New("msgpack: the data ends within a value")
	errTrailing = errors.New("msgpack: more data than one value")
	errDeep     = fmt.Errorf("msgpack: arrays and maps lie more than %d deep, or the value contains itself", maxDepth)
	errEmpty    = errors.New("msgpack: an extension without content is not supported")
	errInterned = errors.New("msgpack: interned strings are not supported")
)

// Bounded checks that data is exactly one MessagePack value, that no declared length exceeds
// the rest of data, and that arrays and maps are nested at most 512 deep. Then a decoder that
// trusts declared lengths creates at most one element per byte of data.
//
// Bounded refuses interned strings (the library's "intern" tag) and extensions without content. If the target is a
// map, reader could not tell how the decoder reads them from how it begins a value.
func Bounded(data string) error {
	_, err := walk(data, nil)
	return err
}

// walk implements Bounded. It appends the position of the content of each extension to contents, for reader.
func walk(data string, contents []span) ([]span, error) {
	var few [16]uint64 // usually enough, so that nothing is allocated
	open := few[:0]    // for each enclosing array or map, the number of values still to come
	left := uint64(1)  // the same for the innermost one
	for at := 0; ; {
		for left == 0 {
			if len(open) == 0 {
				if at < len(data) {
					return contents, errTrailing
				}
				return contents, nil
			}
			left, open = open[len(open)-1], open[:len(open)-1]
		}
		left--
		if at == len(data) {
			return contents, errEnds
		}
		c := &codes[data[at]]
		if len(data)-at < int(c.head) {
			return contents, errEnds
		}
		n := uint64(c.fixed)
		for i := range int(c.width) {
			n = n<<8 | uint64(data[at+1+i])
		}
		values := n * uint64(c.each)
		at += int(c.head)
		if rest := uint64(len(data) - at); n > rest || values > rest {
			return contents, fmt.Errorf("msgpack: code %#x with %d bytes or elements, and %d bytes are left",
				data[at-int(c.head)], n, rest)
		}
		switch c.kind {
		case plain:
			at += int(n)
		case nested:
			if len(open) == maxDepth {
				return contents, errDeep
			}
			open, left = append(open, left), values
		case extension:
			if n == 0 {
				return contents, errEmpty
			}
			if int8(data[at-1]) == internedString {
				return contents, errInterned
			}
			contents = append(contents, span{at, at + int(n)})
			at += int(n)
		default:
			return contents, fmt.Errorf("msgpack: there is no code %#x", data[at-int(c.head)])
		}
	}
}
