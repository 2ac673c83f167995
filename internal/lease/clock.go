package lease

import (
	"context"
	"sync"
	"time"
)

// sample is one exchange with a server: its clock stood at us (µs) at a moment
// between sent and got of the local monotonic clock. In a Cluster each primary
// has a clock of its own, so a sample says something about its server only.
type sample struct {
	us        int64
	sent, got time.Time
}

// clock is what is known of the server's clock.
type clock struct {
	mu     sync.Mutex
	sample sample
	known  bool // there has been a reply
}

func (c *clock) last() (sample, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sample, c.known
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

// clockAge is how old a sample of the server's clock may get before another one
// is taken: clocks run at slightly different rates.
const clockAge = 30 * time.Second

// ServerTime is the server's clock now, in µs, as the last reply showed it; it is
// asked for where there was none yet, and in the background where the last one
// was long ago.
func (m *Manager) ServerTime(ctx context.Context) (int64, error) {
	if s, ok := m.clock.last(); ok {
		now := time.Now()
		if now.Sub(s.got) > clockAge && m.asking.CompareAndSwap(false, true) && m.begin() {
			go func() {
				defer m.done()
				if us, err := m.eng.Time(context.Background()); err == nil {
					m.learn(us, now, time.Now())
				}
				m.asking.Store(false)
			}()
		}
		return s.latest(now), nil
	}
	sent := time.Now()
	replies := make(chan reply[int64], 1)
	m.spawn(func() {
		us, err := m.eng.Time(ctx)
		replies <- reply[int64]{us, err}
	})
	select {
	case r := <-replies:
		if r.err != nil {
			return 0, r.err
		}
		return m.learn(r.val, sent, time.Now()).latest(time.Now()), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// learn takes the server's clock as a reply showed it, and keeps it, unless what
// is known already fits and says more: a call that was long under way makes the
// clock look later than it is, and values older.
func (m *Manager) learn(us int64, sent, got time.Time) sample {
	s := sample{us: us, sent: sent, got: got}
	c := &m.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.sample; !c.known || got.Sub(old.got) >= clockAge || us > old.latest(got) || old.latest(got) >= s.latest(got) {
		c.sample, c.known = s, true
	}
	return s
}
