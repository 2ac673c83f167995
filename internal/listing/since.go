package listing

import "time"

// since says from when on a lease has been held.
//
// A lock and a load have a token, which is the server's time of the grant in µs
// unless its clock went back since. A permit has none: its expiry less its TTL is
// the time of the grant, or of the last renewal where there was one, so that the
// lease is held since then at least.
func (s *State) since(m member, ends int64) time.Time {
	at := time.UnixMilli(ends).Add(-m.ttl)
	if s.fenced() && s.Token > 0 && s.Token < 1<<53 {
		at = time.UnixMicro(int64(s.Token))
	}
	if at.After(s.At) {
		return s.At
	}
	return at
}
