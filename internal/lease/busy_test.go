package lease

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/protocol"
)

// A caller that waits for RetryAfter never spins, however short the holds and high the limit.
func TestRetryAfterIsNeverZero(t *testing.T) {
	var m Manager
	m.holds.add(1)
	if busy := m.busyError(protocol.State{Limit: 100_000}); busy.RetryAfter <= 0 {
		t.Errorf("RetryAfter is %v", busy.RetryAfter)
	}
}
