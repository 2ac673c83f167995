// Package loads implements the protocol of cached values: how requests for the right to load a
// value are named, sent and answered, and how a load's result is published. internal/lease
// uses it to wait, hold, renew and give back.
//
// A resource is one cached value. It has one permit, the right to load. It differs from a lock
// in how a lease ends: the permit does not go to the next waiter, but all waiters are told the
// result.
package loads

import (
	"errors"
	"fmt"
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
	enterScript  = call.NewScript("load enter", luascripts.LoadsEnter())
	leaveScript  = call.NewScript("load leave", luascripts.LoadsLeave())
	askScript    = call.NewScript("load ask", luascripts.LoadsAsk())
	renewScript  = call.NewScript("load renew", luascripts.LoadsRenew())
	revokeScript = call.NewScript("load revoke", luascripts.LoadsRevoke())
)

// ErrUnwanted says that a lease was given back because no caller waited for its load any more.
var ErrUnwanted = errors.New("no caller waits for it any more")

type Family struct {
	keys.Family
	Schema uint32
}

func (f Family) Resource(key string) (protocol.Resource, error) {
	r, err := f.Family.Resource(key)
	if err != nil {
		return nil, err
	}
	return NewResource(r, f.Schema), nil
}

// Resource is one cached value of one schema. Each schema of a key has its own value, failure
// and lease.
type Resource struct {
	keys [10]any // holders, queue, alive, fence, value, failure, landed, aside, schemas, near
}

// Part returns the Redis name of a part that each schema has for itself. The parts of schema 0
// have no suffix.
func Part(r keys.Resource, part string, schema uint32) string {
	if schema == 0 {
		return r.Part(part)
	}
	return r.Part(part) + fmt.Sprintf(".%08x", schema)
}

func NewResource(r keys.Resource, schema uint32) *Resource {
	q := new(Resource)
	for i, part := range []string{"holders", "queue", "alive", "fence", "value", "failure", "landed", "aside"} {
		q.keys[i] = Part(r, part, schema)
	}
	q.keys[8], q.keys[9] = r.Part("schemas"), Near(r)
	return q
}

func (r *Resource) Label() string    { return keys.LabelOf(r.FirstKey()) }
func (r *Resource) FirstKey() string { return r.keys[0].(string) }

const (
	own      = 9       // how many of the keys each script needs
	withNear = own + 1 // those of scripts that have to do with copies in the memory of processes
)

// call prepares a script call with so many of the keys.
func (r *Resource) call(s *call.Script, keys int, words ...any) *call.Call {
	all := make([]any, 0, keys+len(words))
	return call.New(s, keys, append(append(all, r.keys[:keys]...), words...)...)
}

// Rejected names the bytes that a request cannot use. The script treats exactly these bytes as
// absent.
type Rejected struct {
	Value   string // the head of an envelope, or the SHA1 (hex) of bytes that are not one
	Failure string // the SHA1 (hex) of a remembered failure that is not an envelope
}

// Request returns a new attempt, a *Request. The Want of its terms is a Rejected.
func (r *Resource) Request(t protocol.Terms) protocol.Request {
	rejected, _ := t.Want.(Rejected)
	return &Request{res: r, ownerID: t.OwnerID(), ttl: call.Milliseconds(t.TTL), rejected: rejected}
}

// Ask prepares the call with which the waiters of one handle keep their places and ask what
// became of them. For each waiter it names the load that the waiter waits for.
func (r *Resource) Ask(waiters []protocol.Request) *call.Call {
	words := make([]any, 0, 2*len(waiters))
	for _, w := range waiters {
		q := w.(*Request)
		words = append(words, q.ownerID, q.awaits.Load())
	}
	return r.call(askScript, own, words...).WithText()
}

func (r *Resource) ReadAsk(c *call.Call, v []int64, waiters []protocol.Request) (protocol.Reply, error) {
	if len(v) != 3+3*len(waiters) {
		return protocol.Reply{}, call.Malformed("load ask", v)
	}
	reply := protocol.Reply{Now: v[0], State: readState(v[1], v[2])}
	v, texts := v[3:], c.Text
	for _, w := range waiters {
		text := ""
		if v[0] == published || v[0] == revoked {
			if len(texts) == 0 {
				return protocol.Reply{}, call.Malformed("load ask", v)
			}
			text, texts = texts[0], texts[1:]
		}
		s := w.(*Request).standing(v[0], call.Duration(v[1]), uint64(v[2]), text)
		reply.Waiters, v = append(reply.Waiters, s), v[3:]
	}
	return reply, nil
}

func readState(ms, waiting int64) protocol.State {
	return protocol.State{Earliest: call.Duration(ms), InUse: 1, Limit: 1, Waiting: int(waiting)}
}

// Request is one attempt to load, or to wait for the load that runs.
type Request struct {
	res      *Resource
	ownerID  string
	ttl      int64 // ms
	rejected Rejected

	// awaits is the token of the load that the request waits for, according to the last reply.
	awaits atomic.Uint64
	// unwatched says that no caller of this process waits for the load that runs under the
	// request's lease. Its renewals end the lease if no other process waits either.
	unwatched atomic.Bool
}

func (q *Request) ID() string { return protocol.ListedID(q.ownerID) }

// Enter prepares the call that takes the lease, or a place among the waiters.
func (q *Request) Enter(o protocol.EnterOptions) *call.Call {
	return q.res.call(enterScript, own, &q.ownerID, &q.ttl, o.Void(), call.Flag(o.Wait), q.rejected.Value, q.rejected.Failure).WithText()
}

// These are replies of enter and ask that the protocol of permits does not have.
const (
	revoked    = 3 // ask: it was revoked; the reply has the reason
	published  = 8 // enter: there is a value; ask: the load has published
	remembered = 9 // a failure is remembered
)

// Answer is what a request gets instead of a lease: one of Value, Failure and Result.
type Answer struct {
	Value   string  // the envelope of a value that came meanwhile
	Failure string  // the envelope of a remembered failure
	Result  *Record // the result of the load that the request waited for
	Token   uint64  // of that load
}

// enterCodes maps the codes in the script's reply to those of internal/life.
var enterCodes = map[int64]life.Code{
	1: life.Granted, 2: life.Queued, 3: life.Busy, 6: life.Void, 7: life.GivenUp,
	published: life.Answered, remembered: life.Answered,
}

func (q *Request) ReadEnter(c *call.Call, v []int64) (protocol.Reply, error) {
	if len(v) != 5 || enterCodes[v[0]] == life.Gone {
		return protocol.Reply{}, call.Malformed("load enter", v)
	}
	reply := protocol.Reply{Now: v[1]}
	reply.Code, reply.Token = enterCodes[v[0]], uint64(v[3])
	switch reply.Code {
	case life.Granted:
		reply.Term = call.Duration(v[2])
	case life.Queued, life.Busy:
		reply.State = readState(v[2], v[4])
		// This is stored before the waiter joins its group, and so before any message is read
		// for it.
		q.awaits.Store(reply.Token)
	case life.Answered:
		if len(c.Text) != 1 {
			return protocol.Reply{}, call.Malformed("load enter", v)
		}
		if v[0] == published {
			reply.Answer = Answer{Value: c.Text[0]}
		} else {
			reply.Answer = Answer{Failure: c.Text[0]}
		}
	}
	return reply, nil
}

// standing returns what an ask says about the request.
func (q *Request) standing(state int64, term time.Duration, token uint64, text string) (r protocol.Result) {
	const granted, queued = 1, 2
	awaits := q.awaits.Load()
	switch {
	case state == granted:
		r.Code, r.Term, r.Token = life.Granted, term, token
	case state == queued:
		q.awaits.CompareAndSwap(awaits, max(awaits, token))
		r.Code = life.Queued
	case state == revoked:
		r.Code, r.Reason = life.Revoked, text
	case token != awaits:
		// The ask was about an earlier load. The request has since entered again, and waits for
		// another load, about which this reply says nothing.
		r.Code = life.Queued
	case state == published:
		if token, record, err := ParseRecord(text); err == nil {
			r.Code, r.Answer = life.Answered, Answer{Result: &record, Token: token}
		}
	}
	return r
}

// Leave prepares the call that gives the lease back without a result, or stops waiting.
func (q *Request) Leave(enterMayArriveUntil int64, _ bool) *call.Call {
	return q.res.call(leaveScript, own, q.ownerID, call.MillisecondsUp(enterMayArriveUntil))
}

func (q *Request) ReadLeave(v []int64) (r protocol.Reply, err error) {
	if len(v) != 2 {
		return r, call.Malformed("load leave", v)
	}
	r.Code = protocol.LeaveCode(v[0])
	return r, nil
}

// Renew prepares the call that moves the expiry. If no caller of this process waits any more,
// the call ends the lease instead, unless another process waits. With FewKeys it cannot know that.
func (q *Request) Renew(o protocol.RenewOptions) *call.Call {
	ms := call.Milliseconds(o.Term)
	if k := &q.res.keys; o.FewKeys {
		return call.New(renewScript, 3, k[0], k[3], k[8], q.ownerID, ms, 0)
	}
	return q.res.call(renewScript, own, q.ownerID, ms, call.Flag(q.unwatched.Load()), call.MillisecondsUp(o.EnterMayArriveUntil))
}

// errFewKeys says that the lease has ended, or that its load was invalidated: the next renewal finds out.
var errFewKeys = errors.New("the lease is not among the keys that a renewal named while its slot moved")

func (q *Request) ReadRenew(v []int64) (r protocol.Reply, err error) {
	const unwanted, fewKeys = -1, -2
	switch {
	case len(v) != 1 || v[0] < fewKeys:
		err = call.Malformed("load renew", v)
	case v[0] == fewKeys:
		r.Code, r.Err = life.NotSent, errFewKeys
	case v[0] == unwanted:
		r.Code, r.Err = life.Ended, ErrUnwanted
	case v[0] > 0:
		r.Code, r.Term = life.Granted, call.Duration(v[0])
	}
	return r, err
}

// SetLastToken does nothing: a load has one turn.
func (q *Request) SetLastToken(uint64) {}

// Revoke prepares the call that takes away the right to load, or a place in the queue.
func (r *Resource) Revoke(member, id, reason string) *call.Call {
	words := make([]any, 0, own+5)
	words = append(append(words, r.keys[:own]...), keys.Beside(r.FirstKey(), "revoked"), keys.Beside(r.FirstKey(), "audit"), member, id, reason)
	return call.New(revokeScript, own+2, words...)
}

// GoOn returns nil: no enter stops at a bound.
func (r *Resource) GoOn(string) *call.Call { return nil }

// Set returns nil: a load has no limit that can be set.
func (r *Resource) Set(protocol.SetOptions) *call.Call { return nil }

// ReadMessage reads "<seq> <server µs> 0 <token of the load> <record>". It ignores a message
// about a load other than the one that the request waits for.
func (q *Request) ReadMessage(text string) (r protocol.Result, ok bool) {
	token, record, err := ParseMessage(text)
	switch {
	case err != nil || token != q.awaits.Load():
		return r, false
	case !record.Freed: // else it is Gone
		r.Code, r.Answer = life.Answered, Answer{Result: &record, Token: token}
	}
	return r, true
}

func ParseMessage(text string) (token uint64, r Record, err error) {
	words := strings.SplitN(text, " ", 5)
	if len(words) != 5 || words[2] != "0" {
		return 0, Record{}, errUnknown
	}
	return parseRecord(words[3], words[4])
}
