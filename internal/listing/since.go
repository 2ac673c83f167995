package listing

import (
	"math"
	"time"
)

// overlong is how many of its TTLs a lease may be held before a listing points at it: one that
// is renewed for so long may hang.
const overlong = 10

// Overlong reports whether the lease has been renewed for more than ten times its TTL.
func (h Holder) Overlong(now time.Time) bool {
	return h.TTL > 0 && now.Sub(h.Since) > overlong*h.TTL
}

// since returns the time since which a lease has been held.
//
// A lock and a load have a token. It is the server's time of the grant in µs, unless the
// server's clock has gone back since. A permit has no token. The fraction of its score says
// how long before its expiry it was granted, to within 0.2 %. If there is no fraction, that
// time is its TTL.
func (s *State) since(m member, score float64) time.Time {
	ends := math.Ceil(score)
	before := m.ttl
	if part := math.Round((score - math.Floor(score)) * 4096); part > 0 {
		before = time.Duration(math.Expm1(part*0.004) * float64(time.Second)) // as luascripts/permits/shared/held_since.lua
	}
	at := time.UnixMilli(int64(ends)).Add(-before)
	if s.fenced() && s.Token > 0 && s.Token < 1<<53 {
		at = time.UnixMicro(int64(s.Token))
	}
	if at.After(s.At) {
		return s.At
	}
	return at
}
