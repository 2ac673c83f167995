package lease

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// sample is one exchange with a server: its clock stood at us (µs) at a moment
// between sent and got of the local monotonic clock.
type sample struct {
	us        int64
	sent, got time.Time
}

// earliest is the earliest local time at which the server's clock can have stood at
// us: a deadline is counted from it.
func (s sample) earliest(us int64) time.Time {
	return s.sent.Add(time.Duration(us-s.us) * time.Microsecond)
}

// latest is the latest that the server's clock can show at the local time t.
func (s sample) latest(t time.Time) int64 {
	return s.us + t.Sub(s.sent).Microseconds()
}

// maxSampleAge is how old a sample may get before another one is taken: clocks run
// at slightly different rates.
const maxSampleAge = 30 * time.Second

// clocks is what is known of the servers' clocks. Each primary of a Cluster has a
// clock of its own, so there is a sample for each.
type clocks struct {
	mu     sync.Mutex
	byNode map[string]*clock
}

// clock is what is known of one server's clock. It is guarded by the lock of clocks.
type clock struct {
	sample sample
	known  bool      // there has been a reply
	asked  *question // nil: none is under way
}

// question is one TIME that is under way. All callers that need it share it.
type question struct {
	answered chan struct{} // closed when err is set
	err      error
}

// of is the clock of a node. Called with the lock.
func (c *clocks) of(node string) *clock {
	k := c.byNode[node]
	if k == nil {
		k = new(clock)
		c.byNode[node] = k
	}
	return k
}

// serverTime is the latest that the clock of the server that has the Redis key can
// show now, in µs. Where no reply of it is known yet, there is a question to wait
// for instead; callers ask again after its answer.
func (m *Manager) serverTime(key string) (us int64, wait *question) {
	now := time.Now()
	node := m.client.Node(key)
	m.clocks.mu.Lock()
	k := m.clocks.of(node)
	var fresh *question
	if k.asked == nil && (!k.known || now.Sub(k.sample.got) > maxSampleAge) {
		fresh = &question{answered: make(chan struct{})}
		k.asked = fresh
	}
	if us = k.sample.latest(now); !k.known {
		us, wait = 0, k.asked
	}
	m.clocks.mu.Unlock()
	if fresh != nil {
		m.Go(func() { m.askTime(key, node, fresh) })
	}
	return us, wait
}

// askTime asks a server for its clock, for all that wait for the answer.
func (m *Manager) askTime(key, node string, q *question) {
	q.err = errNoAnswer
	defer func() { // also where a hook ends this goroutine
		m.clocks.mu.Lock()
		m.clocks.of(node).asked = nil
		m.clocks.mu.Unlock()
		close(q.answered)
	}()
	var r call.Reading
	if r, q.err = m.client.Clock(context.Background(), key); q.err == nil {
		m.learn(node, r.Micros, r.Sent, r.Got)
	}
}

// ServerTime is the clock of the server that has the Redis key, in µs, as the last
// reply showed it. It asks the server where there was no reply yet; then ctx bounds
// the wait.
func (m *Manager) ServerTime(ctx context.Context, key string) (int64, error) {
	for {
		us, wait := m.serverTime(key)
		if wait == nil {
			return us, nil
		}
		select {
		case <-wait.answered:
			if wait.err != nil {
				return 0, wait.err
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// learn takes a server's clock as a reply showed it, and keeps it, unless what is
// known already fits and says more: a call that was long under way makes the clock
// look later than it is, and values older.
func (m *Manager) learn(node string, us int64, sent, got time.Time) sample {
	s := sample{us: us, sent: sent, got: got}
	m.clocks.mu.Lock()
	defer m.clocks.mu.Unlock()
	k := m.clocks.of(node)
	if old := k.sample; !k.known || got.Sub(old.got) >= maxSampleAge || us > old.latest(got) || old.latest(got) >= s.latest(got) {
		k.sample, k.known = s, true
	}
	return s
}

// margin is how long before the server's expiry a holder stops believing: time
// for a late timer, and for clocks that run at slightly different rates.
func margin(term time.Duration) time.Duration {
	return max(12*time.Millisecond, term/40)
}

// capTerm is ttl, or as much of it as a lease needs that must not outlive left: the
// deadline lies a margin before the end of the term. Durations may be the longest
// there are, so nothing is added that could overflow.
func capTerm(ttl, left time.Duration) time.Duration {
	if slack := 2 * margin(min(ttl, left)); left < ttl-slack {
		return max(0, left) + slack
	}
	return ttl
}
