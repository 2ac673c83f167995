package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A token is not taken for one that is ahead of the clock because the process stood still: then a
// kept lease would go back, and its process would queue behind it.
func TestTokenIsNotAheadOfTheClockOfAProcessThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, newClient := redistest.Bubble(t)
		m := newLocks(t, newClient(), time.Minute)
		l := mustTake(t, m, "k")
		m.StandsStill()
		redistest.Check(t, !l.TokenAheadOfClock(), "the token is taken for one that is ahead of the clock")
		redistest.WantErr(t, l.Release("unlock"))
	})
}
