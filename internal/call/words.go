package call

import (
	"fmt"
	"math"
	"time"
)

// Milliseconds converts a duration to milliseconds for scripts. It rounds up, so that a lease
// is never shorter than what was asked for.
func Milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Duration is the inverse. The longest duration, which was rounded up, stays the longest.
func Duration(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// MillisecondsUp converts a time in µs to milliseconds. It rounds up, so that nothing is over
// before its time.
func MillisecondsUp(us int64) int64 { return (us + 999) / 1000 }

// Flag returns a bool as scripts take it: 0 or 1.
func Flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Malformed returns the error for a reply that this version cannot read.
func Malformed(script string, reply []int64) error {
	return fmt.Errorf("%s answered %d integers that this version does not know", script, len(reply))
}
