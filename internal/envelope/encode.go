package envelope

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"
	"time"
	"unsafe"
)

const (
	codeUint32 = 0xce
	codeUint64 = 0xcf
	codeBin8   = 0xc4
	codeBin16  = 0xc5
	codeBin32  = 0xc6
)

// sumLen is the width of the checksum with its code.
const sumLen = 1 + 4

// Encode returns the two parts of the stored form. The time of publication goes between them,
// in server µs, as 16 decimal digits.
func (e Envelope) Encode() (prefix, suffix string) {
	// The checksum comes first in the suffix, but is computed last.
	fields := make([]byte, sumLen, sumLen+fieldsLen+5)
	fields = append(fields, byte(e.Kind))
	fields = appendUint32(fields, e.Schema)
	fields = appendUint64(fields, ceil(e.Fresh, time.Millisecond))
	fields = appendUint64(fields, ceil(e.Kept, time.Millisecond))
	fields = appendUint64(fields, ceil(e.Took, time.Microsecond))
	fields = appendBinLen(fields, len(e.Payload))
	sum := crc32.Checksum(fields[sumLen:], castagnoli)
	appendUint32(fields[:0], checksum(sum, e.Payload))

	var b strings.Builder
	b.Grow(len(fields) + len(e.Payload))
	b.Write(fields)
	b.WriteString(e.Payload)
	return magic, b.String()
}

// ceil returns d in units, rounded up, or 0 if d is negative.
func ceil(d, unit time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/unit) + 1
}

func appendUint32(b []byte, n uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, codeUint32), n)
}

func appendUint64(b []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, codeUint64), n)
}

// appendBinLen appends the shortest possible header of a bin of n bytes.
func appendBinLen(b []byte, n int) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(b, codeBin8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, codeBin16), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, codeBin32), uint32(n))
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C of s, continued from sum, the one of the bytes before it. Package crc32 takes bytes
// but only reads them, so s is not copied: a copy would cost a cache hit as much as the checksum itself.
func checksum(sum uint32, s string) uint32 {
	return crc32.Update(sum, castagnoli, unsafe.Slice(unsafe.StringData(s), len(s)))
}
