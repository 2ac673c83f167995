package report

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Code of the user that hung, and then ended its goroutine, hangs no more: the next call waits for it again.
func TestCodeThatHungAndExitedIsWaitedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &courier[bool]{hand: func(exits bool) {
			if exits {
				time.Sleep(2 * courierPatience)
				runtime.Goexit()
			}
		}}
		redistest.Check(t, !c.wait(c.put(true)), "it was waited for while it hung")
		time.Sleep(2 * courierPatience)
		redistest.Check(t, c.wait(c.put(false)), "it was not waited for after that")
	})
}
