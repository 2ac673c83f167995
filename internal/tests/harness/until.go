package harness

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Slack is what a busy machine may add to a bound.
const Slack = 2 * time.Second

// Until waits until ok returns nil.
func Until(tb testing.TB, within time.Duration, ok func() error) {
	tb.Helper()
	var err error
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
		redistest.CheckNow(tb, !redistest.Over(began, within), "not within %v: %v", within, err)
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
