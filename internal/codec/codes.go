package codec

import "github.com/vmihailenco/msgpack/v5/msgpcode"

type kind byte

const (
	unused    kind = iota
	plain          // bytes
	nested         // values, in an array or a map
	extension      // bytes with a meaning of their own
)

// code is what the first byte of a value says about the value. The head consists of that byte,
// of a length if there is one, and of the type of an extension.
type code struct {
	kind  kind
	head  uint8 // length of the head, in bytes
	width uint8 // width of the length, in bytes
	fixed uint8 // the length, if the head contains none
	each  uint8 // values per element: 1 in arrays, 2 in maps, else 0
}

// codes is a table, because it is consulted for every value that is decoded. A switch takes more than twice as long.
var codes = func() (all [256]code) {
	for c := range all {
		switch b := byte(c); {
		case msgpcode.IsFixedNum(b):
			all[c] = code{kind: plain, head: 1}
		case msgpcode.IsFixedString(b):
			all[c] = code{kind: plain, head: 1, fixed: b & msgpcode.FixedStrMask}
		case msgpcode.IsFixedArray(b):
			all[c] = code{kind: nested, head: 1, fixed: b & msgpcode.FixedArrayMask, each: 1}
		case msgpcode.IsFixedMap(b):
			all[c] = code{kind: nested, head: 1, fixed: b & msgpcode.FixedMapMask, each: 2}
		}
	}
	for _, b := range []byte{msgpcode.Nil, msgpcode.False, msgpcode.True} {
		all[b] = code{kind: plain, head: 1}
	}
	for size, codes := range map[uint8][]byte{
		1: {msgpcode.Uint8, msgpcode.Int8},
		2: {msgpcode.Uint16, msgpcode.Int16},
		4: {msgpcode.Uint32, msgpcode.Int32, msgpcode.Float},
		8: {msgpcode.Uint64, msgpcode.Int64, msgpcode.Double},
	} {
		for _, b := range codes {
			all[b] = code{kind: plain, head: 1, fixed: size}
		}
	}
	for i, b := range []byte{msgpcode.FixExt1, msgpcode.FixExt2, msgpcode.FixExt4, msgpcode.FixExt8, msgpcode.FixExt16} {
		all[b] = code{kind: extension, head: 2, fixed: 1 << i}
	}
	// Codes of the same sort follow one another, with lengths of 1, 2 and 4 bytes.
	for i := range byte(3) {
		width := uint8(1) << i
		all[msgpcode.Str8+i] = code{kind: plain, head: 1 + width, width: width}
		all[msgpcode.Bin8+i] = code{kind: plain, head: 1 + width, width: width}
		all[msgpcode.Ext8+i] = code{kind: extension, head: 2 + width, width: width}
	}
	for i := range byte(2) {
		width := uint8(2) << i
		all[msgpcode.Array16+i] = code{kind: nested, head: 1 + width, width: width, each: 1}
		all[msgpcode.Map16+i] = code{kind: nested, head: 1 + width, width: width, each: 2}
	}
	return all
}()
