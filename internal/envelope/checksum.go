package envelope

import (
	"hash/crc32"
	"unsafe"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C of s, continued from sum, the one of the bytes before it. Package crc32 takes bytes
// but only reads them, so s is not copied: a copy would cost a cache hit as much as the checksum itself.
func checksum(sum uint32, s string) uint32 {
	return crc32.Update(sum, castagnoli, unsafe.Slice(unsafe.StringData(s), len(s)))
}
