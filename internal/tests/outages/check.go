package outages

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// check ends the crowd, whose calls have judged what is promised whatever happens. It returns how often there
// was what is not promised through the loss of acknowledged writes, and must not be without: turns in
// another's, permits beyond the limit, and values that were loaded before an Invalidate was confirmed.
func (c *crowd) check() (overlaps int) {
	c.Helper()
	c.stop()
	for what, done := range c.done {
		c.Logf("%s: %d calls", what, done.n)
		redistest.Check(c, done.n > 0, "%s did too little to tell", what)
	}
	c.Logf("errors %v; %d overlaps", c.errs, c.overlaps)
	return c.overlaps
}

// recovered waits until a call of each kind that began after at has come to a good end.
func (c *crowd) recovered(at time.Time) {
	c.Helper()
	for what, done := range c.done {
		harness.Until(c, patience, func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if done.last.Before(at) {
				return fmt.Errorf("%s does not work again", what)
			}
			return nil
		})
	}
	c.Logf("all work again after %v", time.Since(at))
}

// work lets everybody go on for a while.
func (c *crowd) work() { time.Sleep(300 * time.Millisecond) }
