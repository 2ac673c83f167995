package permits

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	enterOnceScript  = call.NewScript("enter once", luascripts.PermitsEnterOnce())
	completeScript   = call.NewScript("complete", luascripts.PermitsComplete())
	isCompleteScript = call.NewScript("is complete", luascripts.PermitsIsComplete())
)

// Once is one run of a job, which is to be completed once. It is the Want of an attempt to take
// the lock for it.
type Once struct {
	done string // the Redis key that exists once the run is complete
	keep int64  // ms
}

// Complete is the answer of an enter: the run is complete, and the attempt took nothing.
type Complete struct{}

// NewOnce returns the run named slot of the resource r, whose completion is remembered for
// keep.
func NewOnce(r keys.Resource, slot string, keep time.Duration) *Once {
	return &Once{done: r.Part("done:" + keys.Escape(slot)), keep: call.Milliseconds(keep)}
}

// SetCompletes makes each leave that is prepared from now on store that the run is complete.
func (q *Request) SetCompletes() { q.completes.Store(true) }

// IsComplete prepares the question whether the run is complete. The primary answers it.
func (o *Once) IsComplete() *call.Call { return call.New(isCompleteScript, 1, o.done) }

// ReadIsComplete reads the reply to IsComplete.
func ReadIsComplete(v []int64) (bool, error) {
	if len(v) != 1 || v[0] < 0 || v[0] > 1 {
		return false, call.Malformed("is complete", v)
	}
	return v[0] == 1, nil
}
