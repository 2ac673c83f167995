package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What the scripts of flights answer beside the codes of enter.
const (
	Found    Code = 8 // the value came meanwhile; of an ask: the load has landed
	Failed   Code = 9 // a failure is remembered
	Unwanted      = -1 * time.Millisecond
)

// Look says which value a flight's enter will not do with.
type Look struct {
	Seen     string // the head of an envelope, or the SHA1 (hex) of bytes that are none
	Poisoned string // the SHA1 (hex) of a remembered failure that is no envelope
}

// call prepares a flight's script, with its eight keys.
func (r *Resource) call(s *script, node string, words ...any) *Call {
	all := make([]any, 0, 8+len(words))
	all = append(append(append(all, r.words[:]...), r.more...), words...)
	return newCall(s, node, 8, all...)
}

func (r *Request) flightEnter(o EnterOptions) *Call {
	c := r.call(&flightEnterScript, "", &r.member, &r.ttl, o.Void, flag(o.Wait), o.Look.Seen, o.Look.Poisoned)
	c.mixed = true
	return c
}

func (r *Request) flightLeave(node string, void int64) *Call {
	return r.call(&flightLeaveScript, node, r.member, (void+999)/1000)
}

// RenewAlone prepares the renewal of a lease whose load nobody of this process
// waits for any more: it ends if nobody else does either. void is as with Leave.
func (r *Request) RenewAlone(node string, ttl time.Duration, void int64) *Call {
	return r.flightRenew(node, ttl, true, void)
}

func (r *Request) flightRenew(node string, ttl time.Duration, alone bool, void int64) *Call {
	return r.call(&flightRenewScript, node, r.member, millis(ttl), flag(alone), (void+999)/1000)
}

func (r *Resource) flightAsk(node string, waiters []*Request) *Call {
	words := make([]any, 0, 2*len(waiters))
	for _, w := range waiters {
		words = append(words, w.member, w.Awaits)
	}
	c := r.call(&flightAskScript, node, words...)
	c.mixed = true
	return c
}

// Landing is what a load came to, as it is published.
type Landing struct {
	Prefix, Suffix string        // the envelope, but for the stamp between them
	Keep           time.Duration // as the value; 0 = not at all; negative = and drop the value that is there
	Remember       time.Duration // as the failure; 0 = not at all
}

// Land prepares the publication of a load with the token of its lease. void is
// as with Leave.
func (r *Request) Land(node string, token uint64, void int64, l Landing) *Call {
	keep := millis(l.Keep)
	if l.Keep < 0 {
		keep = -1
	}
	return r.call(&flightLandScript, node, r.member, token, (void+999)/1000, l.Prefix, l.Suffix, keep, millis(l.Remember))
}

// LandState says what became of a publication.
type LandState int64

// The states of publish.lua.
const (
	LandLost      LandState = 0 // the lease had ended: nothing was done
	LandPublished LandState = 1
	LandAside     LandState = 2 // it was invalidated: handed to those who waited, not stored
)

// LandReply is what a publication answered.
type LandReply struct {
	State LandState
	Now   int64 // server, µs
	Left  int   // waiters that the next call tells
}

// ParseLand reads the reply of a publication.
func ParseLand(v []int64) (LandReply, error) {
	if len(v) != 3 || v[0] < 0 || v[0] > 2 {
		return LandReply{}, malformed("flight land", v)
	}
	return LandReply{State: LandState(v[0]), Now: v[1], Left: int(v[2])}, nil
}

// Invalidate prepares the call that drops what is cached.
func (r *Resource) Invalidate(node string) *Call { return r.call(&flightInvalidateScript, node) }

// ParseInvalidate reads its reply: the server's time, in µs.
func ParseInvalidate(v []int64) (int64, error) {
	if len(v) != 2 {
		return 0, malformed("flight invalidate", v)
	}
	return v[0], nil
}

// Inspect prepares the call that reads all that is known of a cached value.
func (r *Resource) Inspect() *Call {
	c := r.call(&flightInspectScript, "")
	c.mixed = true
	return c
}

// FlightState is what is known of a cached value.
type FlightState struct {
	Now       int64         // server, µs
	LeaseEnds time.Duration // 0 = no load runs
	Since     int64         // server µs at which the running load was granted
	Waiting   int           // processes, counting each flight of one
	Aside     int           // invalidated loads that still run
	Kept      time.Duration // the value; 0 = there is none
	Bytes     int
	Failed    time.Duration // how long the failure is remembered yet; 0 = none is

	Loader  string // Request.ID of the load that runs
	Head    string // the first 128 bytes of the value
	Failure string
}

// ParseInspect reads the reply of an inspect.
func ParseInspect(v []int64, text []string) (FlightState, error) {
	if len(v) != 8 || len(text) != 3 {
		return FlightState{}, malformed("flight inspect", v)
	}
	s := FlightState{
		Now: v[0], LeaseEnds: ms(v[1]), Since: v[2], Waiting: int(v[3]), Aside: int(v[4]),
		Kept: max(0, ms(v[5])), Bytes: int(v[6]), Failed: max(0, ms(v[7])), Head: text[1], Failure: text[2],
	}
	if words := strings.SplitN(text[0], ".", 3); len(words) == 3 && len(words[0]) >= 8 {
		s.Loader = words[0][:8] + "-" + words[1]
	}
	return s, nil
}

func parseFlightEnter(v []int64, text []string) (EnterReply, error) {
	if len(v) != 5 || v[0] < 1 || v[0] > 9 || v[0] == int64(TooMany) || v[0] == int64(QueueFull) {
		return EnterReply{}, malformed("flight enter", v)
	}
	r := EnterReply{Code: Code(v[0]), Now: v[1], Token: uint64(v[3])}
	switch r.Code {
	case Granted:
		r.Remaining = ms(v[2])
	case Queued, Busy:
		r.State = State{Earliest: ms(v[2]), InUse: 1, Limit: 1, Waiting: int(v[4])}
	case Found, Failed:
		if len(text) != 1 {
			return EnterReply{}, malformed("flight enter", v)
		}
		r.Text = text[0]
	}
	return r, nil
}

func parseFlightAsk(v []int64, text []string, n int) (AskReply, error) {
	if len(v) != 3+3*n {
		return AskReply{}, malformed("flight ask", v)
	}
	r := AskReply{Now: v[0], State: State{Earliest: ms(v[1]), InUse: 1, Limit: 1, Waiting: int(v[2])}}
	for v = v[3:]; len(v) > 0; v = v[3:] {
		s := Standing{Code: Code(v[0]), Remaining: ms(v[1]), Token: uint64(v[2])}
		if s.Code == Found {
			if len(text) == 0 {
				return AskReply{}, malformed("flight ask", v)
			}
			s.Text, text = text[0], text[1:]
		}
		r.Standings = append(r.Standings, s)
	}
	return r, nil
}

// Record is what a load came to, for those who waited for it.
type Record struct {
	// Stored: it is the value. Else only those who waited get it.
	Stored bool
	// Invalidated: who came after the waiter's own enter must not have it.
	Invalidated bool
	// Freed: the load ended without a result; who waits enters again.
	Freed bool
	// Envelope is the result, where it is at hand.
	Envelope string
}

// parseRecord reads the text of a message or of landed: a letter, an envelope.
func parseRecord(text string) (Record, bool) {
	if text == "" {
		return Record{}, false
	}
	r := Record{Envelope: text[1:]}
	switch text[0] {
	case 'S':
		r.Stored = true
	case 'H':
	case 'A':
		r.Invalidated = true
	case 'F':
		r.Freed = true
	default:
		return Record{}, false
	}
	return r, true
}

// ParseRecord reads what landed holds, and the token of the load.
func ParseRecord(text string) (uint64, Record, error) {
	words := strings.SplitN(text, " ", 3)
	if len(words) == 3 {
		token, err := strconv.ParseUint(words[0], 10, 64)
		if r, ok := parseRecord(words[2]); ok && err == nil {
			return token, r, nil
		}
	}
	return 0, Record{}, fmt.Errorf("a record of %d bytes that this version does not know", len(text))
}
