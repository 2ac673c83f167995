package lease

import "time"

// sample is one exchange with a server: its clock stood at us (µs) at a moment
// between sent and got of the local monotonic clock. In a Cluster each primary
// has a clock of its own, so a sample says something about its server only.
type sample struct {
	us        int64
	sent, got time.Time
}

// earliest is the earliest local time at which the server's clock can have
// stood at us: what a deadline is counted from.
func (s sample) earliest(us int64) time.Time {
	return s.sent.Add(time.Duration(us-s.us) * time.Microsecond)
}

// latest is the latest that the server's clock can show at the local time t.
func (s sample) latest(t time.Time) int64 {
	return s.us + t.Sub(s.sent).Microseconds()
}

// within is ttl, or as much of it as a lease needs that must not outlive left:
// the deadline lies a margin before the end of the term. Durations may be the
// longest there are, so nothing is added that could overflow.
func within(ttl, left time.Duration) time.Duration {
	if slack := 2 * margin(min(ttl, left)); left < ttl-slack {
		return max(0, left) + slack
	}
	return ttl
}

// margin is how long before the server's expiry a holder stops believing: time
// for a late timer, and for clocks that run at slightly different rates.
func margin(term time.Duration) time.Duration {
	return max(12*time.Millisecond, term/40)
}
