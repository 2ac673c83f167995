package permits

import (
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	leaveTurnsScript = call.NewScript("leave turns", luascripts.PermitsLeaveTurns())
	renewCountScript = call.NewScript("renew and count", luascripts.PermitsRenewCount())
	renewKeepScript  = call.NewScript("renew kept", luascripts.PermitsRenewKeep())
)

// SetLastToken sets the token of the last turn on the lease: see protocol.Request.
func (q *Request) SetLastToken(token uint64) { q.lastToken.Store(token) }

// leaveTurns is Leave for a lock that served several turns.
func (q *Request) leaveTurns(enterMayArriveUntil int64) *call.Call {
	k := &q.res.keys
	return call.New(leaveTurnsScript, 4, k[0], k[1], k[2], k[3], &q.ownerID, &q.counted, call.MillisecondsUp(enterMayArriveUntil), int64(q.lastToken.Load()))
}
