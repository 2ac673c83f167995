package envelope

import (
	"hash/crc32"
	"unsafe"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C of s, going on from the one of what precedes it.
// Package crc32 wants bytes, and only reads them: a copy of s would cost a cache
// hit as much as the sum itself does.
func checksum(sum uint32, s string) uint32 {
	return crc32.Update(sum, castagnoli, unsafe.Slice(unsafe.StringData(s), len(s)))
}
