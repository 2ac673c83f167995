package totals

import (
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/luascripts"
)

var revokeScript = call.NewScript("totals revoke", luascripts.TotalsRevoke())

// Revoke prepares the call that takes a lease or a place away.
func (r *Resource) Revoke(member, id, reason string) *call.Call {
	f := r.family
	words := make([]any, 0, len(f.keys)+6)
	words = append(append(words, f.keys[:]...), keys.Beside(r.FirstKey(), "revoked"), keys.Beside(r.FirstKey(), "audit"))
	return call.New(revokeScript, len(f.keys)+2, append(words, member, id, reason, f.total)...)
}
