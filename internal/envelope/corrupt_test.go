package envelope_test

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func refuse(t *testing.T, what, data string) {
	t.Helper()
	e, err := envelope.Decode(data)
	if err == nil {
		t.Errorf("%s: %.100q was accepted", what, data)
		return
	}
	redistest.Check(t, e == (envelope.Envelope{}), "%s: %+v came with %v", what, e, err)
	redistest.Check(t, !strings.Contains(err.Error(), "hello"), "%s: the error shows the payload: %v", what, err)
}

func TestOneWrongByteIsRefused(t *testing.T) {
	data := stored(example())
	stamp := envelope.HeadLen - 16
	for i := range data {
		for c := range 256 {
			wrong := data[:i] + string([]byte{byte(c)}) + data[i+1:]
			inStamp := i >= stamp && i < envelope.HeadLen
			if wrong == data || inStamp && c >= '0' && c <= '9' {
				redistest.Require(t, redistest.ErrorOf(envelope.Decode(wrong)), nil, "byte %d as %#x: %v", i, c)
				continue
			}
			refuse(t, "a wrong byte", wrong)
		}
	}
}

func TestWrongLengthsAreRefused(t *testing.T) {
	long := example()
	long.Payload = strings.Repeat("hello", 20_000)
	for _, data := range []string{stored(example()), stored(long)} {
		step := max(1, len(data)/1000)
		for n := 0; n < len(data); n += step {
			refuse(t, "cut short", data[:n])
		}
		refuse(t, "without its last byte", data[:len(data)-1])
		for _, more := range []string{"\x00", "\xc0", "o", data} {
			refuse(t, "with more behind it", data+more)
			refuse(t, "with more behind it, checksum right", resum(data+more))
		}
	}
}

func TestStampsOutOfRangeAreRefused(t *testing.T) {
	prefix, suffix := example().Encode()
	for _, us := range []int64{-1, -1 << 63, 1e16, 1<<63 - 1} {
		refuse(t, "a stamp", envelope.Join(prefix, us, suffix))
	}
	for _, us := range []int64{0, 1e16 - 1} {
		e, err := envelope.Decode(envelope.Join(prefix, us, suffix))
		redistest.Check(t, err == nil && e.Published == us, "stamp %d became %d, %v", us, e.Published, err)
	}
}

// What a checksum doesn't catch: data that was written so.
func TestWrongFieldsAreRefused(t *testing.T) {
	data := stored(example())
	const kindAt, schemaAt, freshAt, keptAt, tookAt, binAt = 27, 28, 33, 42, 51, 60
	put := func(at int, s string) string { return data[:at] + s + data[at+len(s):] }
	// The longest durations, and a unit more.
	const ms, moreMS = "\xcf\x00\x00\x08\x63\x7b\xd0\x5a\xf7", "\xcf\x00\x00\x08\x63\x7b\xd0\x5a\xf8"
	const us, moreUS = "\xcf\x00\x20\xc4\x9b\xa5\xe3\x53\xf8", "\xcf\x00\x20\xc4\x9b\xa5\xe3\x53\xf9"
	for what, right := range map[string]string{
		"itself": data, "fresh for ever": put(freshAt, ms), "kept for ever": put(keptAt, ms), "took for ever": put(tookAt, us),
	} {
		redistest.Expect(t, redistest.ErrorOf(envelope.Decode(resum(right))), nil, "%s: %v", what)
	}
	for what, wrong := range map[string]string{
		"no kind":              put(kindAt, "\x00"),
		"next kind":            put(kindAt, "\x09"),
		"negative kind":        put(kindAt, "\xff"),
		"checksum as float":    put(checksumAt-1, "\xca"),
		"schema as float":      put(schemaAt, "\xca"),
		"fresh as int64":       put(freshAt, "\xd3"),
		"kept as int64":        put(keptAt, "\xd3"),
		"took as int64":        put(tookAt, "\xd3"),
		"fresh for too long":   put(freshAt, moreMS),
		"kept for too long":    put(keptAt, moreMS),
		"took too long":        put(tookAt, moreUS),
		"took all ones":        put(tookAt, "\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
		"payload as string":    put(binAt, "\xd9"),
		"payload one shorter":  put(binAt+1, "\x04"),
		"payload one longer":   put(binAt+1, "\x06"),
		"payload in bin16":     data[:binAt] + "\xc5\x00\x05hello",
		"payload in bin32":     data[:binAt] + "\xc6\x00\x00\x00\x05hello",
		"half a bin16":         data[:binAt] + "\xc5\x00",
		"half a bin32":         data[:binAt] + "\xc6\x00\x00\x00",
		"bin32 of gigabytes":   data[:binAt] + "\xc6\xff\xff\xff\xffhello",
		"bin32 that bin16 can": data[:binAt] + "\xc6\x00\x00\xff\xff" + strings.Repeat("x", 65535),
		"next version":         put(4, "2"),
		"array of 8":           put(0, "\x98"),
	} {
		refuse(t, what, resum(wrong))
	}
}
