// Package permits implements the protocol of counted permits: how requests of a semaphore or a
// mutex are named, sent and answered. internal/lease uses it to wait for leases and to hold,
// renew and give them back.
package permits

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	enterScript    = call.NewScript("enter", luascripts.PermitsEnter())
	leaveScript    = call.NewScript("leave", luascripts.PermitsLeave())
	askScript      = call.NewScript("ask", luascripts.PermitsAsk())
	setLimitScript = call.NewScript("set limit", luascripts.PermitsSetLimit())
	renewScript    = call.NewScript("renew", luascripts.PermitsRenew())

	// Of a lease that serves several turns, or is kept between them.
	leaveTurnsScript = call.NewScript("leave turns", luascripts.PermitsLeaveTurns())
	renewCountScript = call.NewScript("renew and count", luascripts.PermitsRenewCount())
	renewKeepScript  = call.NewScript("renew kept", luascripts.PermitsRenewKeep())

	// Of a lock for a run that is completed once.
	enterOnceScript  = call.NewScript("enter once", luascripts.PermitsEnterOnce())
	completeScript   = call.NewScript("complete", luascripts.PermitsComplete())
	isCompleteScript = call.NewScript("is complete", luascripts.PermitsIsComplete())
)

// Family implements the protocol for one family of semaphores or mutexes.
type Family struct {
	keys.Family
	Fenced bool // each grant issues a fencing token, and the limit is 1
	Keeps  bool // leases may be kept when nobody uses them
}

// Resource returns the Resource of key.
func (f Family) Resource(key string) (protocol.Resource, error) {
	r, err := f.Family.Resource(key)
	if err != nil {
		return nil, err
	}
	return NewResource(r, f.Fenced, f.Keeps), nil
}

// A Resource is one key with its permits.
type Resource struct {
	fenced  bool
	keys    [4]any  // holders, queue, alive, limit (or fence, if fenced)
	keepers *string // of a family that keeps leases; nil: it keeps none
}

// NewResource returns a Resource with its Redis keys.
func NewResource(r keys.Resource, fenced, keeps bool) *Resource {
	last := "limit"
	if fenced {
		last = "fence"
	}
	res := &Resource{fenced: fenced, keys: [4]any(r.Parts("holders", "queue", "alive", last))}
	if keeps {
		keepers := r.Part("keepers")
		res.keepers = &keepers
	}
	return res
}

// Label returns the family and the key. It is needed seldom, so it takes no memory.
func (r *Resource) Label() string { return keys.LabelOf(r.FirstKey()) }

// FirstKey returns the Redis key of the holders.
func (r *Resource) FirstKey() string { return r.keys[0].(string) }

// Request makes a new attempt.
func (r *Resource) Request(t protocol.Terms) protocol.Request { return r.NewRequest(t) }

// NewRequest is Request with its concrete type.
func (r *Resource) NewRequest(t protocol.Terms) *Request {
	q := &Request{
		res: r, ownerID: t.OwnerID(), permits: t.Permits, counted: t.Permits, ttl: call.Milliseconds(t.TTL), limit: t.Limit, keeps: t.Keeps,
	}
	if r.fenced {
		q.counted = 0
	}
	if once, ok := t.Want.(*Once); ok {
		q.once = once
	}
	return q
}

// Ask prepares the sign of life of waiters of one handle.
func (r *Resource) Ask(waiters []protocol.Request) *call.Call {
	words := make([]any, 0, 5+len(waiters))
	words = append(words, r.keys[0], r.keys[1], r.keys[2], r.keys[3], call.Flag(r.fenced))
	for _, w := range waiters {
		words = append(words, &w.(*Request).ownerID)
	}
	return call.New(askScript, 4, words...).WithText()
}

// ReadAsk reads the reply to an ask.
func (r *Resource) ReadAsk(c *call.Call, v []int64, waiters []protocol.Request) (protocol.Reply, error) {
	return ReadAsk(c, v, waiters)
}

// ReadAsk reads such a reply: now µs, the state, and for each waiter its standing, the term of its
// lease in ms, and its token; then grants.
func ReadAsk(c *call.Call, v []int64, waiters []protocol.Request) (protocol.Reply, error) {
	if len(v) < 5+3*len(waiters) {
		return protocol.Reply{}, call.Malformed("ask", v)
	}
	reply, reasons := protocol.Reply{Now: v[0], State: ReadState(v[1:5])}, c.Text
	v = v[5:]
	for range waiters {
		var one protocol.Result
		one, reasons = Standing(v[0], v[1], reasons)
		one.Token = uint64(v[2])
		reply.Waiters, v = append(reply.Waiters, one), v[3:]
	}
	return reply, reply.ReadGrants("ask", v)
}

// Standing returns what an ask says of a waiter: its state, and the term of its lease in ms.
// The reasons of revocations are taken from texts.
func Standing(state, ms int64, texts []string) (one protocol.Result, others []string) {
	switch state {
	case 1:
		one.Code, one.Term = life.Granted, call.Duration(ms)
	case 2:
		one.Code = life.Queued
	case 3:
		one.Code = life.Revoked
		one.Reason, texts = protocol.First(texts)
	}
	return one, texts
}

// GoOn returns nil: an ask continues.
func (r *Resource) GoOn(string) *call.Call { return nil }

// ReadState reads the state in a reply: ms until the first lease ends, permits in use, limit, and
// the number of waiting requests.
func ReadState(v []int64) protocol.State {
	return protocol.State{Earliest: call.Duration(v[0]), InUse: int(v[1]), Limit: int(v[2]), Waiting: int(v[3])}
}

// Set prepares the call that sets the limit of a semaphore's key.
func (r *Resource) Set(o protocol.SetOptions) *call.Call {
	return call.New(setLimitScript, 4, r.keys[0], r.keys[1], r.keys[2], r.keys[3], o.Limit, o.Handle, o.Number)
}

// A Request is one attempt to take permits.
type Request struct {
	res     *Resource
	ownerID string
	permits int
	counted int   // permits as enter and leave take them; 0: one, fenced
	ttl     int64 // ms
	limit   int

	once      *Once         // the run that the lock is for; nil: none
	keeps     bool          // the lease may be kept when nobody uses it
	lastToken atomic.Uint64 // token of the last of several turns; 0: the lease served one
}

// ID returns the attempt's name in listings.
func (q *Request) ID() string { return protocol.ListedID(q.ownerID) }

// The usual values of the script's argument "wait", made once: do not wait, do not wait but for
// permits that were kept, and wait behind everybody with no bound.
var dontWait, awaitKept, waitAsLast any = "", "?0", "0 0"

// Enter prepares the call that takes permits or a place in the queue.
func (q *Request) Enter(o protocol.EnterOptions) *call.Call {
	wait := waitAsLast
	switch {
	case !o.Wait && !o.AwaitsKept:
		wait = dontWait
	case !o.Wait && o.MaxWaiters == 0:
		wait = awaitKept
	case !o.Wait:
		wait = "?" + strconv.Itoa(o.MaxWaiters)
	case o.Ticket != 0 || o.MaxWaiters != 0:
		wait = strconv.FormatInt(o.Ticket, 10) + " " + strconv.Itoa(o.MaxWaiters)
	}
	k := &q.res.keys
	if q.once != nil {
		return call.New(enterOnceScript, 5, k[0], k[1], k[2], k[3], q.once.Done, &q.ownerID, &q.counted, &q.ttl, &q.limit, o.Void(), wait)
	}
	if q.keeps {
		return call.New(enterScript, 5, k[0], k[1], k[2], k[3], q.res.keepers, &q.ownerID, &q.counted, &q.ttl, &q.limit, o.Void(), wait)
	}
	return call.New(enterScript, 4, k[0], k[1], k[2], k[3], &q.ownerID, &q.counted, &q.ttl, &q.limit, o.Void(), wait)
}

// enterCodes maps the codes of the script. The script of internal/totals has the same ones.
var enterCodes = [...]life.Code{
	1: life.Granted, 2: life.Queued, 3: life.Busy, 4: life.TooMany, 5: life.QueueFull, 6: life.Void, 7: life.GivenUp, 8: life.Answered,
}

// EnterCode returns what a code in the reply to an enter means. It returns life.Gone for a
// code that this version does not know.
func EnterCode(code int64) life.Code {
	if code < 0 || code >= int64(len(enterCodes)) {
		return life.Gone
	}
	return enterCodes[code]
}

// ReadEnter reads the reply to an enter.
func (q *Request) ReadEnter(_ *call.Call, v []int64) (r protocol.Reply, err error) {
	if len(v) < 6 || EnterCode(v[0]) == life.Gone {
		return r, call.Malformed("enter", v)
	}
	r.Code, r.Now = EnterCode(v[0]), v[1]
	switch r.Code {
	case life.Granted:
		r.Term, r.Token = call.Duration(v[2]), uint64(v[3])
		r.Contended, r.Added = v[4] != 0, v[5] != 0
	case life.Queued, life.Busy, life.TooMany, life.QueueFull:
		r.State = ReadState(v[2:6])
	case life.Answered:
		r.Answer = Complete{}
	}
	return r, r.ReadGrants("enter", v[6:])
}

// Leave prepares the call that gives back or leaves the queue.
func (q *Request) Leave(enterMayArriveUntil int64, completes bool) *call.Call {
	k, until := &q.res.keys, call.MillisecondsUp(enterMayArriveUntil)
	switch last := q.lastToken.Load(); {
	case last != 0:
		return call.New(leaveTurnsScript, 4, k[0], k[1], k[2], k[3], &q.ownerID, &q.counted, until, int64(last))
	case completes:
		return call.New(completeScript, 5, k[0], k[1], k[2], k[3], q.once.Done, &q.ownerID, &q.counted, until, q.once.Keep)
	}
	return call.New(leaveScript, 4, k[0], k[1], k[2], k[3], &q.ownerID, &q.counted, until)
}

// ReadLeave reads the reply to a leave.
func (q *Request) ReadLeave(v []int64) (protocol.Reply, error) { return ReadLeave(v) }

// ReadLeave reads such a reply: what was left, and, unless that is all, grants behind a second word.
func ReadLeave(v []int64) (r protocol.Reply, err error) {
	if len(v) == 0 {
		return r, call.Malformed("leave", v)
	}
	r.Code = protocol.LeaveCode(v[0])
	if len(v) == 1 {
		return r, nil
	}
	return r, r.ReadGrants("leave", v[2:])
}

// Renew prepares the call that moves the expiry. Listings derive from the token how long a lock
// has been held.
func (q *Request) Renew(o protocol.RenewOptions) *call.Call {
	k, ms, held := &q.res.keys, call.Milliseconds(o.Term), max(0, o.HeldFor.Milliseconds())
	switch {
	case o.Keeps && q.res.fenced:
		return call.New(renewKeepScript, 4, k[0], k[1], k[2], q.res.keepers, &q.ownerID, &q.permits, ms, &q.limit)
	case o.Keeps:
		return call.New(renewKeepScript, 5, k[0], k[1], k[2], q.res.keepers, k[3], &q.ownerID, &q.permits, ms, &q.limit, held)
	case o.Counts && q.res.fenced:
		return call.New(renewCountScript, 2, k[0], k[1], &q.ownerID, &q.permits, ms, &q.limit)
	case o.Counts:
		return call.New(renewCountScript, 3, k[0], k[1], k[3], &q.ownerID, &q.permits, ms, &q.limit, held)
	case q.res.fenced:
		return call.New(renewScript, 1, k[0], &q.ownerID, &q.permits, ms)
	}
	return call.New(renewScript, 1, k[0], &q.ownerID, &q.permits, ms, held)
}

// ReadRenew reads the reply to a renewal.
func (q *Request) ReadRenew(v []int64) (r protocol.Reply, err error) {
	if r.Result, err = ReadRenew("renew", v); len(v) >= 4 {
		r.Use = protocol.Use{Waiting: int(v[1]), InUse: int(v[2]), Limit: int(v[3]), Recalled: len(v) > 4 && v[4] != 0}
	}
	return r, err
}

// ReadRenew reads the part of a renewal's reply that every protocol has.
func ReadRenew(name string, v []int64) (r protocol.Result, err error) {
	switch {
	case len(v) == 0 || v[0] < 0:
		err = call.Malformed(name, v)
	case v[0] > 0:
		r.Code, r.Term = life.Granted, call.Duration(v[0])
	}
	return r, err
}

// ReadMessage reads the message of a grant or a refusal: "<seq> <granted at, µs> <term, ms, or
// minus the limit that refused> <token>".
func (q *Request) ReadMessage(text string) (protocol.Result, bool) {
	return ParseMessage(text)
}

// ParseMessage parses such a message.
func ParseMessage(text string) (r protocol.Result, ok bool) {
	var v [4]int64
	words := strings.Split(text, " ")
	if len(words) != len(v) {
		return r, false
	}
	for i := range v {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return r, false
		}
		v[i] = n
	}
	if v[2] < 0 {
		r.Code, r.Limit = life.TooMany, int(-v[2])
		return r, true
	}
	r.Code, r.GrantedAt, r.Term, r.Token = life.Granted, v[1], call.Duration(v[2]), uint64(v[3])
	return r, true
}

// SetLastToken sets the token of the last turn on the lease: see protocol.Request.
func (q *Request) SetLastToken(token uint64) { q.lastToken.Store(token) }

// Once is one run of a job, which is to be completed once. It is the Want of an attempt to take
// the lock for it.
type Once struct {
	Done string // the Redis key that exists once the run is complete
	Keep int64  // ms
}

// Complete is the answer of an enter: the run is complete, and the attempt took nothing.
type Complete struct{}

// NewOnce returns the run named slot of the resource r, whose completion is remembered for
// keep.
func NewOnce(r keys.Resource, slot string, keep time.Duration) *Once {
	return &Once{Done: r.Part("done:" + keys.Escape(slot)), Keep: call.Milliseconds(keep)}
}

// IsComplete prepares the question whether the run is complete. The primary answers it.
func (o *Once) IsComplete() *call.Call { return call.New(isCompleteScript, 1, o.Done) }
