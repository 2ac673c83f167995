package envelope_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// published is the stamp of the envelopes here.
const published = 1_700_000_000_123_456

// stored is e as it lies in Redis.
func stored(e envelope.Envelope) string { return storedAt(e, published) }

// storedAt is stored with that stamp, which the script puts between the parts.
func storedAt(e envelope.Envelope, us int64) string {
	prefix, suffix := e.Encode()
	return fmt.Sprintf("%s%016d%s", prefix, us, suffix)
}

// checksumAt is where the four bytes of the checksum lie; it is of all that follows them.
const checksumAt = envelope.HeadLen + 1

// resum gives data the checksum that its bytes have.
func resum(data string) string {
	b := []byte(data)
	binary.BigEndian.PutUint32(b[checksumAt:], crc32.Checksum(b[checksumAt+4:], crc32.MakeTable(crc32.Castagnoli)))
	return string(b)
}

func example() envelope.Envelope {
	return envelope.Envelope{
		Kind: envelope.Value, Schema: 7, Published: published,
		Fresh: time.Minute, Kept: time.Hour, Took: 1500 * time.Microsecond, Payload: "hello",
	}
}

// The bytes are a promise to every process that runs another version.
func TestLayout(t *testing.T) {
	prefix, suffix := example().Encode()
	redistest.Expect(t, prefix, "\x99\xa3lh1\xb0", "the prefix is %q")
	want := "\xce\x34\x4a\xf9\x7e" + // checksum
		"\x01" +
		"\xce\x00\x00\x00\x07" +
		"\xcf\x00\x00\x00\x00\x00\x00\xea\x60" + // 60,000 ms
		"\xcf\x00\x00\x00\x00\x00\x36\xee\x80" + // 3,600,000 ms
		"\xcf\x00\x00\x00\x00\x00\x00\x05\xdc" + // 1500 µs
		"\xc4\x05hello"
	redistest.Check(t, suffix == want, "the suffix is\n%q, want\n%q", suffix, want)
	for i, k := range []envelope.Kind{
		envelope.Value, envelope.NotFound, envelope.Failure, envelope.Timeout,
		envelope.Panic, envelope.Goexit, envelope.TooLarge, envelope.Unmarshalable,
	} {
		redistest.Check(t, int(k) == i+1, "kind %d of the list is %d", i+1, k)
	}
}

// To decode allocates nothing: it is done for every hit of the cache.
func TestRoundTrip(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	for k := envelope.Value; k <= envelope.Unmarshalable; k++ {
		// Around the lengths at which the header or the chunk of the checksum changes.
		for _, n := range []int{0, 1, 255, 256, 4095, 4096, 4097, 65535, 65536, 100_000} {
			for _, d := range []time.Duration{0, time.Millisecond, 36 * time.Hour, longest} {
				want := envelope.Envelope{
					Kind: k, Schema: uint32(n) * 40_000, Published: published,
					Fresh: d, Kept: longest - longest%time.Millisecond, Took: d, Payload: strings.Repeat("\xff\x00", n)[:n],
				}
				data := stored(want)
				redistest.CheckNow(t, data == resum(data), "%d bytes have another checksum", n)
				got, err := envelope.Decode(data)
				redistest.CheckNow(t, err == nil && got == want, "kind %d, %d bytes, %v: got %+.80v, %v", k, n, d, got, err)
				allocs := testing.AllocsPerRun(10, func() { _, _ = envelope.Decode(data) })
				redistest.Check(t, allocs == 0, "%d bytes: %v allocations", n, allocs)
			}
		}
	}
}

func TestDurationsAreRoundedUp(t *testing.T) {
	for _, c := range []struct{ d, ms, us time.Duration }{
		{-1, 0, 0},
		{math.MinInt64, 0, 0},
		{0, 0, 0},
		{1, time.Millisecond, time.Microsecond},
		{time.Millisecond, time.Millisecond, time.Millisecond},
		{time.Millisecond + 1, 2 * time.Millisecond, 1001 * time.Microsecond},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		got, err := envelope.Decode(stored(envelope.Envelope{Kind: envelope.NotFound, Fresh: c.d, Kept: c.d, Took: c.d}))
		redistest.Check(t, err == nil && got.Fresh == c.ms && got.Kept == c.ms && got.Took == c.us,
			"%v became %v, %v, %v (%v); want %v, %v, %v", c.d, got.Fresh, got.Kept, got.Took, err, c.ms, c.ms, c.us)
	}
}

func refuse(t *testing.T, what, data string) {
	t.Helper()
	e, err := envelope.Decode(data)
	redistest.CheckNow(t, err != nil, "%s: %.100q was accepted", what, data)
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

// What a checksum doesn't catch: data that was written so.
func TestWrongFieldsAreRefused(t *testing.T) {
	for _, us := range []int64{-1, -1 << 63, 1e16, 1<<63 - 1} {
		refuse(t, "a stamp", storedAt(example(), us))
	}
	for _, us := range []int64{0, 42, 1e16 - 1} {
		e, err := envelope.Decode(storedAt(example(), us))
		redistest.Check(t, err == nil && e.Published == us, "stamp %d became %d, %v", us, e.Published, err)
	}
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

// Decode never panics, and what it accepts has no other form.
func FuzzDecode(f *testing.F) {
	f.Add(stored(example()))
	f.Add(stored(envelope.Envelope{Kind: envelope.TooLarge}))
	f.Add(stored(envelope.Envelope{Kind: envelope.Value, Payload: string(make([]byte, 300))}))
	f.Add("")
	f.Add("\x99\xa3lh1\xb0")
	check := func(t *testing.T, data string) {
		e, err := envelope.Decode(data)
		if err != nil {
			redistest.Check(t, e == (envelope.Envelope{}), "%+v came with %v", e, err)
			return
		}
		redistest.Expect(t, storedAt(e, e.Published), data, "%q decoded to %+v, which is\n%q", data, e)
		redistest.Expect(t, envelope.Head(data), data[:envelope.HeadLen], "its head is %q")
	}
	f.Fuzz(func(t *testing.T, data string) {
		check(t, data)
		if len(data) >= checksumAt+4 {
			check(t, resum(data)) // or nothing would pass the checksum
		}
	})
}
