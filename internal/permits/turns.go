package permits

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	leaveTurnsScript = call.NewScript("leave turns", luascripts.PermitsLeaveTurns())
	renewCountScript = call.NewScript("renew and count", luascripts.PermitsRenewCount())
)

// SetLastToken sets the token of the last turn on the lease: see lease.TurnRequest.
func (q *Request) SetLastToken(token uint64) { q.lastToken.Store(token) }

// leaveTurns is Leave for a lock that served several turns.
func (q *Request) leaveTurns(enterMayArriveUntil int64) *call.Call {
	k := &q.res.keys
	return call.New(leaveTurnsScript, 4, k[0], k[1], k[2], k[3], &q.ownerID, &q.counted, call.MillisecondsUp(enterMayArriveUntil), int64(q.lastToken.Load()))
}

// RenewAndCount prepares a renewal that also reports how the resource is used. heldFor is the
// time for which the lease has been held.
func (q *Request) RenewAndCount(term, heldFor time.Duration) *call.Call {
	k, ms := &q.res.keys, call.Milliseconds(term)
	if q.res.fenced {
		return call.New(renewCountScript, 2, k[0], k[1], &q.ownerID, &q.permits, ms, &q.limit)
	}
	return call.New(renewCountScript, 3, k[0], k[1], k[3], &q.ownerID, &q.permits, ms, &q.limit, max(0, heldFor.Milliseconds()))
}

// ReadRenewAndCount reads the reply: the part of a renewal, and the use.
func (q *Request) ReadRenewAndCount(v []int64) (renewed []int64, use lease.Use, err error) {
	if len(v) != 4 {
		return nil, use, call.Malformed("renew and count", v)
	}
	return v[:1], lease.Use{Waiting: int(v[1]), InUse: int(v[2]), Limit: int(v[3])}, nil
}
