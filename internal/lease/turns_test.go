package lease_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// A token is not taken for one that is ahead of the clock because the process stood still: then a
// kept lease would go back, and its process would queue behind it.
func TestTokenIsNotAheadOfTheClockOfAProcessThatStoodStill(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, _ *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		m.StandsStill()
		redistest.Check(t, !l.TokenAheadOfClock(), "the token is taken for one that is ahead of the clock")
		redistest.WantErr(t, l.Release("unlock"))
	})
}
