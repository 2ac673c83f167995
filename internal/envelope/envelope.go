// Package envelope is the form in which a cached value is kept in Redis: what it
// is, when it was published, how long it is good for and how dear it was, with a
// checksum over all of it. An envelope is a MessagePack array, which most
// languages can read. The cmsgpack of Redis scripts knows no bin: there,
// cmsgpack.unpack_limit(data, 8, 1) gives the fields before the payload, behind
// the position of it.
//
// The fields, all but the last of fixed width:
//
//	magic      "lh1": the format and its version
//	published  server µs, 16 decimal digits, put in by the script that publishes
//	checksum   uint32, CRC-32C of all bytes that follow it
//	kind       positive fixint
//	schema     uint32
//	fresh      uint64, ms
//	kept       uint64, ms
//	took       uint64, µs
//	payload    bin, to the very end
package envelope

import (
	"strconv"
	"strings"
	"time"
)

// Kind says what an envelope holds.
type Kind byte

// The kinds. Those from Failure on are results of a load that gave no value.
const (
	Value         Kind = iota + 1 // the payload is the value, as its codec wrote it
	NotFound                      // there is no such thing; no payload
	Failure                       // the payload is the error's text, as it is of the next three
	Timeout                       // the load took longer than it may
	Panic                         // the load panicked
	Goexit                        // the load ended its goroutine
	TooLarge                      // the value was larger than what may be stored; no payload
	Unmarshalable                 // the codec refused the value; the payload is its error's text

	lastKind = Unmarshalable
)

// HeadLen is how many bytes of an envelope tell one publication of a key from
// another: all up to the end of the stamp.
const HeadLen = len(magic) + stampLen

// magic is what precedes the stamp: array of 9, string of 3, string of 16.
const (
	magic    = "\x99\xa3lh1\xb0"
	stampLen = 16
)

// Envelope is what is known of a cached value.
type Envelope struct {
	Kind   Kind
	Schema uint32
	// Published is the server's time, in µs. Encode leaves it out: the script
	// that publishes stamps the envelope.
	Published int64
	// Fresh is for how long from Published the value is good, and Kept for how
	// long it stays in Redis. Both are kept in ms, rounded up, so that what is
	// not 0 doesn't become 0; negative ones are kept as 0.
	Fresh, Kept time.Duration
	// Took is how long the load ran, kept in µs in the same way.
	Took time.Duration
	// Payload is at most what Redis stores, 512 MB. A decoded one shares the
	// memory of the string that it was decoded from.
	Payload string
}

// Head is the first HeadLen bytes of data, or all of it where it is shorter.
func Head(data string) string { return data[:min(len(data), HeadLen)] }

// Join makes the stored form from what Encode gave, as the script does on the
// server. us is the time of publication in µs, 0 to 9999999999999999 (which is
// in the year 2286): what lies outside gives an envelope that Decode refuses.
func Join(prefix string, us int64, suffix string) string {
	stamp := strconv.FormatInt(us, 10)
	if n := stampLen - len(stamp); n > 0 {
		stamp = strings.Repeat("0", n) + stamp
	}
	return prefix + stamp + suffix
}
