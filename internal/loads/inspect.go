package loads

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/luascripts"
)

var inspectScript = call.NewScript("load inspect", luascripts.LoadsInspect())

func (r *Resource) Inspect() *call.Call { return r.call(inspectScript, withNear).WithText() }

type State struct {
	Now         int64         // server time, µs
	LeaseEnds   time.Duration // until the lease of the running load ends; 0: no load runs
	Since       int64         // server time of the grant to the running load, µs
	Waiting     int           // processes that wait; each wait of a process counts
	Invalidated int           // running loads that may not store their result any more
	Kept        time.Duration // until the value expires; 0: there is none
	Bytes       int
	Failed      time.Duration // how long the failure is still remembered; 0: there is none
	Near        int           // handles that may serve a copy of the value from memory

	Loader      string // Request.ID of the running load
	LoaderLabel string
	Head        string // the first 128 bytes of the value
	Failure     string
}

func ReadInspect(v []int64, text []string) (State, error) {
	if len(v) != 9 || len(text) != 3 {
		return State{}, call.Malformed("load inspect", v)
	}
	return State{
		Now: v[0], LeaseEnds: call.Duration(v[1]), Since: v[2], Waiting: int(v[3]), Invalidated: int(v[4]),
		Kept: max(0, call.Duration(v[5])), Bytes: int(v[6]), Failed: max(0, call.Duration(v[7])), Near: int(v[8]),
		Loader: protocol.ListedID(text[0]), LoaderLabel: protocol.ListedLabel(text[0]), Head: text[1], Failure: text[2],
	}, nil
}
