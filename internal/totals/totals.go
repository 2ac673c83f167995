// Package totals implements the protocol of families with a total: semaphores whose keys share
// a number of permits. A semaphore without a total uses internal/permits instead. All keys of
// a family are in one Cluster slot, and one set of Redis keys serves them all;
// luascripts/totals/shared/keys.lua describes them.
package totals

import (
	"strconv"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	enterScript    = call.NewScript("totals enter", luascripts.TotalsEnter())
	leaveScript    = call.NewScript("totals leave", luascripts.TotalsLeave())
	askScript      = call.NewScript("totals ask", luascripts.TotalsAsk())
	renewScript    = call.NewScript("totals renew", luascripts.TotalsRenew())
	setLimitScript = call.NewScript("totals set limit", luascripts.TotalsSetLimit())
)

// Family implements the protocol for one family with a total.
type Family struct {
	family     keys.Family
	label      string // of the family
	total      int
	maxWaiters string // bound for all keys together, as enter takes it
	keys       [8]any // holders, places, queue, line, alive, ready, turns, limits
}

// parts are the family's keys in Redis, in the order in which the scripts take them.
var parts = [8]string{"holders", "places", "queue", "line", "alive", "ready", "turns", "limits"}

// NewFamily returns a Family with its Redis keys. total is the total that this process
// configured. maxWaitersTotal bounds the waiters of all keys together; 0: no bound.
func NewFamily(f keys.Family, total, maxWaitersTotal int) *Family {
	r := f.Together()
	return &Family{
		family: f, label: r.Label(), total: total, maxWaiters: strconv.Itoa(maxWaitersTotal), keys: [8]any(r.Parts(parts[:]...)),
	}
}

// Resource returns the Resource of key.
func (f *Family) Resource(key string) (protocol.Resource, error) {
	r, err := f.family.Resource(key)
	if err != nil {
		return nil, err
	}
	// In Redis a key is a part of members, in the same form as in the label: escaped, or a
	// hash.
	return &Resource{family: f, label: r.Label(), key: r.Key()}, nil
}

// Whole returns the family itself as a Resource, whose limit is the total. Only Set uses it.
func (f *Family) Whole() *Resource { return &Resource{family: f, label: f.label} }

// A Resource is one key of the family.
type Resource struct {
	family *Family
	label  string
	key    string // "": the family itself
}

// Label returns the family and the key.
func (r *Resource) Label() string { return r.label }

// FirstKey returns the Redis key of the holders. The whole family shares it, so all waiters of
// the family in this process give signs of life together.
func (r *Resource) FirstKey() string { return r.family.keys[0].(string) }

// call prepares a call with all keys of the family.
func (f *Family) call(s *call.Script, args ...any) *call.Call {
	words := make([]any, 0, len(f.keys)+len(args))
	return call.New(s, len(f.keys), append(append(words, f.keys[:]...), args...)...)
}

// Request makes a new attempt. Terms.Want is the key's share.
func (r *Resource) Request(t protocol.Terms) protocol.Request {
	share, _ := t.Want.(int)
	attempt := t.OwnerID()
	return &Request{
		family: r.family, id: protocol.ListedID(attempt), handle: t.Handle,
		member:  r.key + ":" + attempt + "." + strconv.Itoa(max(1, share)) + "." + strconv.Itoa(r.family.total),
		permits: t.Permits, ttl: call.Milliseconds(t.TTL), limit: t.Limit,
	}
}

// Ask prepares the sign of life of waiters of one handle. They may wait for different keys.
func (r *Resource) Ask(waiters []protocol.Request) *call.Call {
	f := r.family
	words := make([]any, 0, 10+len(waiters))
	words = append(append(words, f.keys[:]...), waiters[0].(*Request).handle, f.total)
	for _, w := range waiters {
		words = append(words, &w.(*Request).member)
	}
	return call.New(askScript, len(f.keys), words...).WithText()
}

// GoOn prepares the call that continues after one that stopped at its bound.
func (r *Resource) GoOn(handle string) *call.Call {
	return r.family.call(askScript, handle, r.family.total).WithText()
}

// ReadAsk reads the reply to an ask.
func (r *Resource) ReadAsk(c *call.Call, v []int64, waiters []protocol.Request) (protocol.Reply, error) {
	const head, each = 6, 5
	if len(v) < head+each*len(waiters) {
		return protocol.Reply{}, call.Malformed("totals ask", v)
	}
	family := protocol.State{Earliest: call.Duration(v[1]), TotalInUse: int(v[3]), Total: int(v[4]), Competing: int(v[5])}
	reply, reasons := protocol.Reply{Now: v[0], More: v[2] == 1, State: family}, c.Text
	v = v[head:]
	for range waiters {
		state := family
		state.InUse, state.Limit, state.Waiting = int(v[2]), int(v[3]), int(v[4])
		var one protocol.Result
		one, reasons = permits.Standing(v[0], v[1], reasons)
		one.State = &state
		reply.Waiters, v = append(reply.Waiters, one), v[each:]
	}
	return reply, reply.ReadGrants("totals ask", v)
}

// Set prepares the call that sets the key's limit, or the total.
func (r *Resource) Set(o protocol.SetOptions) *call.Call {
	return r.family.call(setLimitScript, r.key, o.Limit, o.Handle, o.Number, r.family.total)
}

// A Request is one attempt to take permits.
type Request struct {
	family  *Family
	id      string
	handle  string
	member  string
	permits int
	ttl     int64 // ms
	limit   int
}

// ID returns the attempt's name in listings.
func (q *Request) ID() string { return q.id }

// Member returns the member of the request in the sorted sets.
func (q *Request) Member() string { return q.member }

// Enter prepares the call that takes permits or a place in the queue.
func (q *Request) Enter(o protocol.EnterOptions) *call.Call {
	wait := ""
	if o.Wait {
		wait = strconv.FormatInt(o.Ticket, 10) + " " + strconv.Itoa(o.MaxWaiters) + " " + q.family.maxWaiters
	}
	return q.family.call(enterScript, &q.member, &q.permits, &q.ttl, &q.limit, &q.family.total, o.Void(), wait)
}

// ReadEnter reads the reply to an enter.
func (q *Request) ReadEnter(_ *call.Call, v []int64) (r protocol.Reply, err error) {
	const short, long = 4, 11
	if len(v) < short || permits.EnterCode(v[0]) == life.Gone {
		return r, call.Malformed("totals enter", v)
	}
	r.Code, r.Now, r.More = permits.EnterCode(v[0]), v[1], v[3] == 1
	rest := v[short:]
	switch r.Code {
	case life.Granted:
		r.Term = call.Duration(v[2])
	case life.Queued, life.Busy, life.TooMany, life.QueueFull:
		if len(v) < long {
			return protocol.Reply{}, call.Malformed("totals enter", v)
		}
		r.State = protocol.State{
			Earliest: call.Duration(v[2]), InUse: int(v[4]), Limit: int(v[5]), Waiting: int(v[6]),
			TotalInUse: int(v[7]), Total: int(v[8]), InTheWay: call.Duration(v[9]), Competing: int(v[10]),
		}
		if r.Code == life.TooMany {
			r.State.Limit = min(r.State.Limit, r.State.Total) // the error names one limit
		}
		rest = v[long:]
	}
	return r, r.ReadGrants("totals enter", rest)
}

// Leave prepares the call that gives back or leaves the queue.
func (q *Request) Leave(enterMayArriveUntil int64, _ bool) *call.Call {
	return q.family.call(leaveScript, &q.member, &q.permits, call.MillisecondsUp(enterMayArriveUntil))
}

// ReadLeave reads the reply to a leave.
func (q *Request) ReadLeave(v []int64) (r protocol.Reply, err error) {
	if len(v) == 0 || len(v) == 2 {
		return r, call.Malformed("totals leave", v)
	}
	r.Code = protocol.LeaveCode(v[0])
	if len(v) == 1 {
		return r, nil
	}
	r.More = v[2] == 1
	return r, r.ReadGrants("totals leave", v[3:])
}

// Renew prepares the call that moves the expiry.
func (q *Request) Renew(o protocol.RenewOptions) *call.Call {
	k := &q.family.keys
	return call.New(renewScript, 2, k[0], k[1], &q.member, &q.permits, call.Milliseconds(o.Term), max(0, o.HeldFor.Milliseconds()))
}

// ReadRenew reads the reply to a renewal.
func (q *Request) ReadRenew(v []int64) (r protocol.Reply, err error) {
	r.Result, err = permits.ReadRenew("totals renew", v)
	return r, err
}

// SetLastToken does nothing: permits have no tokens.
func (q *Request) SetLastToken(uint64) {}

// ReadMessage reads the message of a grant, which has the form of internal/permits.
func (q *Request) ReadMessage(text string) (protocol.Result, bool) {
	return permits.ParseMessage(text)
}

var revokeScript = call.NewScript("totals revoke", luascripts.TotalsRevoke())

// Revoke prepares the call that takes a lease or a place away.
func (r *Resource) Revoke(member, id, reason string) *call.Call {
	f := r.family
	words := make([]any, 0, len(f.keys)+6)
	words = append(append(words, f.keys[:]...), keys.Beside(r.FirstKey(), "revoked"), keys.Beside(r.FirstKey(), "audit"))
	return call.New(revokeScript, len(f.keys)+2, append(words, member, id, reason, f.total)...)
}
