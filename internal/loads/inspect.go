package loads

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/luascripts"
)

var inspectScript = call.NewScript("load inspect", luascripts.LoadsInspect())

// Inspect prepares the call that reads all that is known of a cached value.
func (r *Resource) Inspect() *call.Call { return r.call(inspectScript).WithText() }

// State is what is known of a cached value.
type State struct {
	Now         int64         // server, µs
	LeaseEnds   time.Duration // 0 = no load runs
	Since       int64         // server µs at which the running load was granted
	Waiting     int           // processes, one for each wait of a process
	Invalidated int           // loads that run yet, but may not store
	Kept        time.Duration // the value; 0 = there is none
	Bytes       int
	Failed      time.Duration // how long the failure is remembered yet; 0 = none is

	Loader      string // Request.ID of the load that runs
	LoaderLabel string
	Head        string // the first 128 bytes of the value
	Failure     string
}

// ReadInspect reads the reply to an inspect.
func ReadInspect(v []int64, text []string) (State, error) {
	if len(v) != 8 || len(text) != 3 {
		return State{}, call.Malformed("load inspect", v)
	}
	return State{
		Now: v[0], LeaseEnds: call.Duration(v[1]), Since: v[2], Waiting: int(v[3]), Invalidated: int(v[4]),
		Kept: max(0, call.Duration(v[5])), Bytes: int(v[6]), Failed: max(0, call.Duration(v[7])),
		Loader: lease.ListedID(text[0]), LoaderLabel: lease.ListedLabel(text[0]), Head: text[1], Failure: text[2],
	}, nil
}
