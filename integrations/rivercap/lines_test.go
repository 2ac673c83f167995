package rivercap

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Refused jobs come back one behind the other at the speed that is known now: a refusal that says nothing about
// it, and those from before a first job was done, put no job many seconds behind the work that is left.
func TestRefusedJobsComeBackAtTheSpeedOfTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls lines
		const step = 10 * time.Millisecond
		busy := &leasehold.BusyError{RetryAfter: 2 * step}
		for range 10 {
			ls.delay("k", &leasehold.BusyError{RetryAfter: time.Second}) // no job was done yet
		}
		redistest.Expect(t, ls.delay("k", busy), 11*step, "the first with a known speed comes back after %v")
		time.Sleep(5 * step)
		redistest.Expect(t, ls.delay("k", busy), 7*step, "once five are back, the next one comes back after %v")
		redistest.Expect(t, ls.delay("k", fmt.Errorf("granted too late: %w", leasehold.ErrBusy)), 8*step, "after a grant that came too late, the job comes back after %v")
		time.Sleep(time.Second)
		redistest.Expect(t, ls.delay("k", busy), step, "once all are back, the next one comes back after %v")
		redistest.Expect(t, ls.delay("other", leasehold.ErrBusy), time.Second, "without any figure, a job comes back after %v")
	})
}
