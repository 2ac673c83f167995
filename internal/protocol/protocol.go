// Package protocol is what internal/lease and the protocols agree on: how the requests of a leased
// thing are named, sent and answered. internal/permits implements it for semaphores and mutexes;
// the other implementations are beside that package.
package protocol

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
)

// A Protocol is that of one leased thing.
type Protocol interface {
	// Resource returns the Resource of key, or an error if key is invalid.
	Resource(key string) (Resource, error)
}

// A Resource is one key of a family. Requests for the same key compete.
type Resource interface {
	// Label returns the family and the key as errors and logs show them.
	Label() string
	// FirstKey returns a Redis key in the slot of the resource. Waiters whose resources have
	// the same FirstKey give signs of life together.
	FirstKey() string
	// Request makes a new attempt. Its member carries the terms, so that another process that
	// hands a permit on to it can read them.
	Request(t Terms) Request
	// Ask prepares the call that gives a sign of life for waiters and asks what became of
	// them. A call names at most MaxAsk of them.
	Ask(waiters []Request) *call.Call
	// ReadAsk reads the reply to an ask for waiters, or to GoOn.
	ReadAsk(c *call.Call, reply []int64, waiters []Request) (Reply, error)
	// GoOn prepares the call that continues where an enter of this handle stopped at a bound,
	// even if the handle has no waiter there. nil: an ask continues.
	GoOn(handle string) *call.Call
	// Revoke prepares the call that takes the lease or the place of member away and marks its
	// id. The mark makes the call idempotent. member is "" if none was found.
	Revoke(member, id, reason string) *call.Call
	// Set prepares the call that stores a limit and grants to the waiters that now have room.
	// If it is sent again, it stores nothing and only continues to grant. nil: the resource has
	// no limit that can be set.
	Set(o SetOptions) *call.Call
}

// A Request is one attempt, identified by its owner id. A copy of it takes nothing twice.
type Request interface {
	// ID returns the attempt's name in listings. It is not the owner id.
	ID() string
	// Enter prepares the call that takes the permits, or a place in the queue.
	Enter(o EnterOptions) *call.Call
	ReadEnter(c *call.Call, reply []int64) (Reply, error)
	// Leave prepares the call that gives back, or leaves the queue. enterMayArriveUntil is the
	// server time (µs) until which a copy of the enter may still arrive; 0: none can. completes: the
	// leave also stores that the run that the lease is for is complete, if it still holds the lease.
	Leave(enterMayArriveUntil int64, completes bool) *call.Call
	ReadLeave(reply []int64) (Reply, error)
	// Renew prepares the call that moves the expiry.
	Renew(o RenewOptions) *call.Call
	ReadRenew(reply []int64) (Reply, error)
	// ReadMessage reads a message from the handle's inbox about this attempt while it is
	// queued. It returns false if the message is not one that it may believe.
	ReadMessage(text string) (Result, bool)
	// SetLastToken sets the fencing token of the last of several turns that the lease has
	// served. Every leave that is prepared from then on carries it.
	SetLastToken(token uint64)
}

// MaxAsk is the largest number of waiters that one ask names.
const MaxAsk = 250

// Terms says what an attempt asks for.
type Terms struct {
	Handle  string // the handle's id; see lease.Manager
	Seq     uint64 // the attempt's number; a handle never uses one twice
	Permits int
	TTL     time.Duration
	Limit   int
	Keeps   bool // the lease may be kept when nobody uses it
	Want    any  // for the protocol alone
}

// EnterOptions are the options of an enter.
type EnterOptions struct {
	VoidAfter  *int64 // server time (µs) from which on the call does nothing; nil or 0: never
	Wait       bool   // take a place in the queue if nothing is free
	Ticket     int64  // place in the queue, server µs; 0: behind all others
	MaxWaiters int    // 0: no bound
	AwaitsKept bool   // without Wait: queue if permits that were kept may be on their way
}

// Void returns VoidAfter as an argument of a call.
func (o EnterOptions) Void() *int64 {
	if o.VoidAfter == nil {
		return new(int64)
	}
	return o.VoidAfter
}

// RenewOptions are the options of a renewal.
type RenewOptions struct {
	Term                time.Duration // to which the expiry is moved, from now
	EnterMayArriveUntil int64         // as in Leave, if the renewal ends the lease
	HeldFor             time.Duration // how long the lease has been held, for listings
	Counts              bool          // the reply also says how the resource is used
	Keeps               bool          // with Counts: and whether the lease was recalled
	FewKeys             bool          // its slot moves: name only keys that exist, see call.Scattered
}

// SetOptions describe a setting: see internal/setting.
type SetOptions struct {
	Handle string
	Limit  int // 0: back to the limit that each process has configured
	// Number is the latest that the server's time (µs) can have been when the setting was
	// called. Of two settings, the one with the higher number counts. Redis does nothing if the
	// setting arrives more than 5 s later.
	Number int64
}

// A Result is what an answer says of one attempt, or that there is none.
type Result struct {
	life.Outcome
	Contended bool   // of Granted by an enter: the lease must not be kept
	Added     bool   // of Granted by an enter: leases of earlier enters may have been recalled
	Seq       uint64 // of the attempt, where a reply is about several
	Token     uint64 // of Granted
	GrantedAt int64  // server time (µs) from which the Term of a message counts
	Limit     int    // of TooMany
	State     *State // of its key; nil: the same as the reply's
	Reason    string // of Revoked
	Answer    any    // of Answered
	Err       error  // why there is no answer, or what Ended says, or which replicas did not confirm
}

// A Reply is the reply to a call. Its Result is about the attempt that the call was for.
type Reply struct {
	Result
	Now     int64    // server time, µs; of an enter or an ask
	State   State    // of an ask, and with Queued, Busy, TooMany and QueueFull
	Waiters []Result // of an ask, in the order of the waiters
	Grants  []Result // other waiters of the handle that were granted, or refused for good
	More    bool     // the call stopped at a bound; sent again at once, it continues
	Use     Use      // of a renewal that counts
}

// Use tells how a resource is used.
type Use struct {
	Waiting, InUse, Limit int  // waiting requests; permits
	Recalled              bool // somebody has asked for what the handle keeps
}

// State tells how busy a resource was.
type State struct {
	AsOf                  time.Time     // when Redis reported it; zero: just now
	Earliest              time.Duration // time until the first lease ends; 0: none is held
	InUse, Limit, Waiting int

	// For a family with a total:
	Total, TotalInUse int
	Competing         int           // number of keys that wait for the total
	InTheWay          time.Duration // time until the first lease ends of those that the request waits for; 0: Earliest
}

// OwnerID returns the name of the attempt in the scripts: <handle>.<seq>.<permits>.<ttl
// ms>.<limit>. Each attempt has a new one, so that the scripts recognise a call that arrives
// twice. It contains the terms, so that a process that hands a permit on knows what to grant.
func (t Terms) OwnerID() string {
	buf := make([]byte, 0, 160) // on the stack, whatever the label
	buf = append(buf, t.Handle...)
	for _, n := range [...]int64{int64(t.Seq), int64(t.Permits), call.Milliseconds(t.TTL), int64(t.Limit)} {
		buf = strconv.AppendInt(append(buf, '.'), n, 10)
	}
	return string(buf)
}

// ListedID returns the name that listings show for an owner id: the first eight characters of
// the handle, and the number of the attempt. No two attempts for one key share it. It does not
// reveal the owner id, which has more random bits.
func ListedID(ownerID string) string {
	words := strings.SplitN(ownerID, ".", 3)
	if len(words) < 3 || len(words[0]) < 8 {
		return ""
	}
	return words[0][:8] + "-" + words[1]
}

// ListedLabel returns the label of the handle in an owner id.
func ListedLabel(ownerID string) string {
	handle, _, _ := strings.Cut(ownerID, ".")
	_, label, _ := strings.Cut(handle, "~")
	if text, ok := keys.Unescape(label); ok {
		return text
	}
	return label
}

// ReadGrants reads the part of a reply of the script name that is about other waiters. Each
// has three numbers: seq, term in ms (or minus the limit that refused it), token. If the call
// stopped at a bound, (0, 0, 0) comes last. No attempt has the number 0.
func (r *Reply) ReadGrants(name string, reply []int64) error {
	if len(reply)%3 != 0 {
		return call.Malformed(name, reply)
	}
	for ; len(reply) > 0; reply = reply[3:] {
		switch seq, what := uint64(reply[0]), reply[1]; {
		case seq == 0:
			r.More = true
		case what < 0:
			r.Grants = append(r.Grants, Result{Outcome: life.Outcome{Code: life.TooMany}, Seq: seq, Limit: int(-what)})
		default:
			r.Grants = append(r.Grants, Result{Outcome: life.Outcome{Code: life.Granted, Term: call.Duration(what)}, Seq: seq, Token: uint64(reply[2])})
		}
	}
	return nil
}

// LeaveCode returns what the code in the reply to a leave says.
func LeaveCode(code int64) life.Code {
	switch code {
	case 1:
		return life.Held
	case 2:
		return life.Queued
	}
	return life.Gone
}

// First returns the first of the strings of a reply, and the others.
func First(texts []string) (first string, others []string) {
	if len(texts) == 0 {
		return "", nil
	}
	return texts[0], texts[1:]
}
