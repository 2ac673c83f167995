// Package envelope defines the form in which a cached value is stored in Redis. It says what the value is, when it
// was published, how long it is fresh and how long its load took, and has a checksum over all of this.
//
// An envelope is a MessagePack array, which most languages can read. The cmsgpack of Redis
// scripts does not know the type bin. There, cmsgpack.unpack_limit(data, 8, 1) returns the
// position of the payload, followed by the fields before it.
//
// These are the fields. All except the last have a fixed width:
//
//	magic      "lh1": the format and its version
//	published  server µs, 16 decimal digits, inserted by the script that publishes
//	checksum   uint32, CRC-32C of all bytes that follow it
//	kind       positive fixint
//	schema     uint32
//	fresh      uint64, ms
//	kept       uint64, ms
//	took       uint64, µs
//	payload    bin, up to the end
package envelope

import "time"

type Kind byte

// The kinds. Those from Failure on are results of loads that returned no value.
const (
	Value         Kind = iota + 1 // the payload is the value, as its codec encoded it
	NotFound                      // the value does not exist; no payload
	Failure                       // the payload is the text of the error, also for the next three kinds
	Timeout                       // the load took longer than LoadTimeout
	Panic                         // the load panicked
	Goexit                        // the load ended its goroutine
	TooLarge                      // the value was too large to be stored; no payload
	Unmarshalable                 // the codec refused the value; the payload is the text of its error

	lastKind = Unmarshalable
)

// HeadLen is the number of bytes that tell one publication of a key from another: everything
// up to the end of the stamp.
const HeadLen = len(magic) + stampLen

// magic precedes the stamp: an array of 9, a string of 3, and the head of a string of 16.
const (
	magic    = "\x99\xa3lh1\xb0"
	stampLen = 16
)

// Envelope is a cached value with everything that is known about it.
type Envelope struct {
	Kind   Kind
	Schema uint32
	// Published is the server's time, in µs. Encode leaves it out, because the script that publishes inserts it.
	Published int64
	// Fresh is how long after Published the value is fresh. Kept is how long it stays in Redis. Both are stored in
	// ms, rounded up, so that a positive duration does not become 0. A negative duration is stored as 0.
	Fresh, Kept time.Duration
	// Took is how long the load ran. It is stored in µs, rounded in the same way.
	Took time.Duration
	// Payload has at most the size that Redis can store, 512 MB. After Decode it shares the
	// memory of the decoded string.
	Payload string
}

// Head returns the first HeadLen bytes of data, or all of data if it is shorter.
func Head(data string) string { return data[:min(len(data), HeadLen)] }
