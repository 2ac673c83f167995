//go:build unix

package run

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A guard that only warns sleeps while its program goes on without the lease.
func TestGuardThatWarnsSleepsAfterTheLease(t *testing.T) {
	g := &guard{task: task{Lost: LostWarn}, program: 1, deadline: clock() - time.Second}
	redistest.Expect(t, g.due(), tick, "it sleeps for %v")
}
