package loads

import (
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/luascripts"
)

var revokeScript = call.NewScript("load revoke", luascripts.LoadsRevoke())

// Revoke prepares the call that takes away the right to load, or a place in the queue.
func (r *Resource) Revoke(member, id, reason string) *call.Call {
	words := make([]any, 0, own+5)
	words = append(append(words, r.keys[:own]...), keys.Beside(r.FirstKey(), "revoked"), keys.Beside(r.FirstKey(), "audit"), member, id, reason)
	return call.New(revokeScript, own+2, words...)
}
