package envelope

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// fieldsLen is the total width of kind, schema, fresh, kept and took.
const fieldsLen = 1 + 5 + 3*9

const (
	sumAt    = HeadLen
	kindAt   = sumAt + sumLen
	schemaAt = kindAt + 1
	freshAt  = schemaAt + 5
	keptAt   = freshAt + 9
	tookAt   = keptAt + 9
	binAt    = tookAt + 9
)

var (
	errShort    = errors.New("envelope: cut short")
	errFormat   = errors.New("envelope: not one of version lh1")
	errStamp    = errors.New("envelope: the stamp is not 16 digits")
	errChecksum = errors.New("envelope: the checksum is wrong")
	errPayload  = errors.New("envelope: the payload has a wrong length or header")
)

// Decode reads the stored form. It accepts only what Encode and the stamp produce, so each
// envelope has exactly one form. Payload shares the memory of data; nothing is allocated. An
// error says what is wrong and shows nothing of the payload.
func Decode(data string) (Envelope, error) {
	e, err := Header(data)
	if err != nil {
		return Envelope{}, err
	}
	// From here on, any difference from what was written is a bad checksum, whatever else is wrong.
	if data[sumAt] != codeUint32 || uint64(checksum(0, data[kindAt:])) != number(data[sumAt+1:kindAt]) {
		return Envelope{}, errChecksum
	}
	var ok bool
	if e.Payload, ok = payload(data[binAt:]); !ok {
		return Envelope{}, errPayload
	}
	return e, nil
}

// Header reads everything except the payload. data is the first 128 bytes of the stored form
// or more. Header does not check the checksum, which covers the payload too.
func Header(data string) (Envelope, error) {
	if len(data) < len(magic) || data[:len(magic)] != magic {
		return Envelope{}, errFormat
	}
	if len(data) < binAt+2 {
		return Envelope{}, errShort
	}
	us, ok := stamp(data[len(magic):HeadLen])
	if !ok {
		return Envelope{}, errStamp
	}
	if k := Kind(data[kindAt]); k < Value || k > lastKind {
		return Envelope{}, fmt.Errorf("envelope: kind %d; want %d to %d", k, Value, lastKind)
	}
	if data[schemaAt] != codeUint32 {
		return Envelope{}, errField("schema", data[schemaAt])
	}
	fresh, badFresh := duration("fresh", data[freshAt:keptAt], time.Millisecond)
	kept, badKept := duration("kept", data[keptAt:tookAt], time.Millisecond)
	took, badTook := duration("took", data[tookAt:binAt], time.Microsecond)
	if err := cmp.Or(badFresh, badKept, badTook); err != nil {
		return Envelope{}, err
	}
	schema := uint32(number(data[schemaAt+1 : freshAt]))
	return Envelope{Kind: Kind(data[kindAt]), Schema: schema, Published: us, Fresh: fresh, Kept: kept, Took: took}, nil
}

func stamp(digits string) (us int64, ok bool) {
	for i := range len(digits) {
		c := digits[i] - '0'
		if c > 9 {
			return 0, false
		}
		us = us*10 + int64(c)
	}
	return us, true
}

func number(s string) (n uint64) {
	for i := range len(s) {
		n = n<<8 | uint64(s[i])
	}
	return n
}

// duration reads a uint64 as a number of units. Encode rounds the longest duration up;
// duration reads the result as the longest duration again.
func duration(field, s string, unit time.Duration) (time.Duration, error) {
	if s[0] != codeUint64 {
		return 0, errField(field, s[0])
	}
	n := number(s[1:])
	switch longest := uint64(math.MaxInt64 / unit); {
	case n <= longest:
		return time.Duration(n) * unit, nil
	case n == longest+1:
		return math.MaxInt64, nil
	}
	return 0, fmt.Errorf("envelope: %s is %d times %v; want at most %v", field, n, unit, time.Duration(math.MaxInt64))
}

// payload reads a bin that has the shortest possible header and extends to the end of s. s has at least two bytes.
func payload(s string) (string, bool) {
	var width, least uint64 // the width of the length; the least length that needs this width
	switch s[0] {
	case codeBin8:
		width = 1
	case codeBin16:
		width, least = 2, math.MaxUint8+1
	case codeBin32:
		width, least = 4, math.MaxUint16+1
	default:
		return "", false
	}
	head := 1 + width
	if uint64(len(s)) < head {
		return "", false
	}
	n := number(s[1:head])
	return s[head:], n >= least && n == uint64(len(s))-head
}

func errField(field string, code byte) error {
	return fmt.Errorf("envelope: %s begins with %#x", field, code)
}
