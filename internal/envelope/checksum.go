package envelope

import (
	"hash/crc32"
	"sync"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunks are what checksum copies a string through: package crc32 wants bytes,
// and a copy of the whole on the heap would cost a cache hit more than the sum
// itself does.
var chunks = sync.Pool{New: func() any { return new([4096]byte) }}

// checksum is the CRC-32C of s, going on from the one of what precedes it.
func checksum(sum uint32, s string) uint32 {
	chunk := chunks.Get().(*[4096]byte)
	for s != "" {
		n := copy(chunk[:], s)
		sum = crc32.Update(sum, castagnoli, chunk[:n])
		s = s[n:]
	}
	chunks.Put(chunk)
	return sum
}
