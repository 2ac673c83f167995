package envelope_test

import (
	"encoding/binary"
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
func stored(e envelope.Envelope) string {
	prefix, suffix := e.Encode()
	return envelope.Join(prefix, published, suffix)
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
	if want := "\x99\xa3lh1\xb0"; prefix != want {
		t.Errorf("the prefix is %q, want %q", prefix, want)
	}
	want := "\xce\x34\x4a\xf9\x7e" + // checksum
		"\x01" +
		"\xce\x00\x00\x00\x07" +
		"\xcf\x00\x00\x00\x00\x00\x00\xea\x60" + // 60,000 ms
		"\xcf\x00\x00\x00\x00\x00\x36\xee\x80" + // 3,600,000 ms
		"\xcf\x00\x00\x00\x00\x00\x00\x05\xdc" + // 1500 µs
		"\xc4\x05hello"
	redistest.Check(t, suffix == want, "the suffix is\n%q, want\n%q", suffix, want)
	data := envelope.Join(prefix, published, suffix)
	if want := prefix + "1700000000123456" + suffix; data != want {
		t.Errorf("joined\n%q, want\n%q", data, want)
	}
	redistest.Expect(t, envelope.Join("", 42, ""), "0000000000000042", "the stamp of 42 is %q")
}

func TestKindsKeepTheirNumbers(t *testing.T) {
	for i, k := range []envelope.Kind{
		envelope.Value, envelope.NotFound, envelope.Failure, envelope.Timeout,
		envelope.Panic, envelope.Goexit, envelope.TooLarge, envelope.Unmarshalable,
	} {
		redistest.Check(t, int(k) == i+1, "kind %d of the list is %d", i+1, k)
	}
}

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

// It is done for every hit of the cache.
func TestDecodeAllocatesNothing(t *testing.T) {
	for _, n := range []int{0, 100, 10_000, 1_000_000} {
		e := example()
		e.Payload = strings.Repeat("p", n)
		data := stored(e)
		if got := testing.AllocsPerRun(100, func() {
			redistest.Must(envelope.Decode(data))(t)
		}); got != 0 {
			t.Errorf("%d bytes: %v allocations", n, got)
		}
	}
}
