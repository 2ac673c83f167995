package lease

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
)

// holdTimes is a moving average of how long the leases of a handle were held.
type holdTimes struct{ mean atomic.Int64 } // 0: none has been given back yet

// add adds a hold to the average, with a weight of an eighth. If two goroutines call it at the
// same time, one of the holds may be left out.
func (h *holdTimes) add(held time.Duration) {
	old := h.mean.Load()
	mean := int64(held)
	if old != 0 {
		mean = old + (mean-old)/8
	}
	h.mean.CompareAndSwap(old, max(1, mean))
}

// maxBlindRetry bounds RetryAfter if no hold has been observed yet.
const maxBlindRetry = time.Second

// busyError returns the error of a request that found a resource in state s. RetryAfter
// estimates when the request's turn would come if all before it held as long as others did. It
// is at most the time until the first lease ends by itself.
func (m *Manager) busyError(s State) *leasehold.BusyError {
	retry := maxBlindRetry
	if mean := time.Duration(m.holds.mean.Load()); mean > 0 {
		turns := float64(s.Waiting+1) / float64(max(1, s.Limit))
		if s.Total > 0 {
			// The keys that wait for the total take turns.
			turns = max(turns, float64(s.Waiting+1)*float64(max(1, s.Competing))/float64(s.Total))
		}
		retry = time.Duration(min(turns*float64(mean), float64(time.Hour)))
	}
	if first := cmp.Or(s.InTheWay, s.Earliest); first > 0 {
		if !s.AsOf.IsZero() {
			first = max(time.Millisecond, first-time.Since(s.AsOf))
		}
		retry = min(retry, first)
	}
	return &leasehold.BusyError{
		RetryAfter: max(1, retry), InUse: s.InUse, Limit: s.Limit, Waiting: s.Waiting, Total: s.Total, TotalInUse: s.TotalInUse,
	}
}
