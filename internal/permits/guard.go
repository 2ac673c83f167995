package permits

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/luascripts"
)

var guardSetScript = call.NewScript("guard set", luascripts.GuardSet())

// GuardSet prepares a guarded write: it writes value to the key valueKey unless the key
// seenKey has a newer token than token.
func GuardSet(valueKey, seenKey, token string, value any, ttl time.Duration) *call.Call {
	return call.New(guardSetScript, 2, valueKey, seenKey, token, value, call.Milliseconds(ttl))
}

// ReadGuardSet reads the reply and reports whether the value was written. A reply that is not
// a verdict is an error.
func ReadGuardSet(v []int64) (written bool, err error) {
	if len(v) != 1 || v[0] < 0 || v[0] > 1 {
		return false, call.Malformed("guard set", v)
	}
	return v[0] == 1, nil
}
