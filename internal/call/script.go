package call

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"sync"
	"time"
)

// A Script is one constant script with the digest by which a server knows it.
type Script struct {
	name, source, sha string
	shaWord           any // sha, as an argument of a command
}

// scripts has all scripts that NewScript made, for ScriptName.
var scripts sync.Map // *Script

// NewScript makes a script of source; name is its name in tests and traces.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	s := &Script{name: name, source: source, sha: sha, shaWord: sha}
	scripts.Store(s, nil)
	return s
}

// ScriptName returns the name of a script, given its digest or its text, for tests and traces.
// It returns "" for a script that NewScript did not make.
func ScriptName(word string) (name string) {
	scripts.Range(func(s, _ any) bool {
		if s := s.(*Script); word == s.sha || word == s.source {
			name = s.name
		}
		return name == ""
	})
	return name
}

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

// MillisecondsUp converts a time in µs to milliseconds. It rounds up, so that nothing is over before its time.
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
