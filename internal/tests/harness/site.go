package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Site is one key of a family as it stands on its server: what the tests of faults
// compare the library's word with. Its client goes around every fault.
type Site struct {
	TB          testing.TB
	RDB         redis.UniversalClient
	Kind        string
	Family, Key string
}

// NewSite makes a site of a family that no other test uses.
func NewSite(tb testing.TB, kind string, rdb redis.UniversalClient) *Site {
	StrictOnly(tb, kind)
	return &Site{TB: tb, RDB: rdb, Kind: kind, Family: redistest.Name(tb), Key: "k"}
}

// On is another key of the family, in the eyes of another test.
func (s *Site) On(tb testing.TB, key string) *Site {
	return &Site{TB: tb, RDB: s.RDB, Kind: s.Kind, Family: s.Family, Key: key}
}

// Part is a Redis key of the site, by the names that the contract gives.
func (s *Site) Part(part string) string { return Part(s.Kind, s.Family, s.Key, part) }

// Queued is the number of waiters.
func (s *Site) Queued() int {
	s.TB.Helper()
	n, err := s.RDB.ZCard(context.Background(), s.Part("queue")).Result()
	redistest.Check(s.TB, err == nil, "count the queue: %v", err)
	return int(n)
}

// WaitQueued waits until so many are in the queue.
func (s *Site) WaitQueued(n int) {
	s.TB.Helper()
	WaitCount(s.TB, "waiters", n, s.Queued)
}

var unexpired = redis.NewScript(`local t = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], '(' .. (t[1] * 1000 + math.floor(t[2] / 1000)), '+inf')`)

// Living counts the members of a sorted set whose time is not over, by the server's clock.
func (s *Site) Living(part string) int {
	s.TB.Helper()
	n, err := unexpired.Run(context.Background(), s.RDB, []string{s.Part(part)}).Int()
	redistest.Check(s.TB, err == nil, "count %s: %v", part, err)
	return n
}

// InUse is the number of leases held by the server's clock.
func (s *Site) InUse() int {
	s.TB.Helper()
	return s.Living("holders")
}

// Slack is what a busy machine may add to a bound.
const Slack = 2 * time.Second

// Until waits until ok returns nil.
func Until(tb testing.TB, within time.Duration, ok func() error) {
	tb.Helper()
	var err error
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
		redistest.CheckNow(tb, !time.Now().After(deadline), "not within %v: %v", within, err)
	}
}

// WaitCount waits until got returns want.
func WaitCount(tb testing.TB, what string, want int, got func() int) {
	tb.Helper()
	Until(tb, redistest.Soon, func() error {
		if n := got(); n != want {
			return fmt.Errorf("%s: %d; want %d", what, n, want)
		}
		return nil
	})
}
