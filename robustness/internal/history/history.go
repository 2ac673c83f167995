// Package history is what many clients did and when: the events that they
// report one by one, and the operations that these make up.
package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Forever is the end of what has none.
const Forever = math.MaxInt64

// Terms are what the clients of a history agreed on.
type Terms struct {
	Seed   uint64        `json:"seed"`
	Fault  string        `json:"fault"`
	Server string        `json:"server"`
	Limit  int           `json:"limit"`           // of every semaphore
	Total  int           `json:"total,omitempty"` // of the family whose keys begin with t
	TTL    time.Duration `json:"ttl"`             // of every lease
	Quiet  bool          `json:"quiet"`           // the faults are such that no call may say "unavailable"
}

// Operation is a call and what came of it.
type Operation struct {
	Event         // of its call
	Return  int64 // Forever where there was none
	Class   string
	Text    string
	Token   uint64
	Lease   string // its ID
	Values  map[string]string
	Expires int64  // Deadline of the lease when it was granted
	Ended   int64  // when its Context had ended by itself; Forever where it didn't
	Last    int64  // Deadline of the lease at that moment
	Why     string // it ended by itself
	Shown   map[string]int
	Ran     bool // a Once ran its function
}

func Name(worker string, id int) string { return fmt.Sprintf("%s.%d", worker, id) }

func (o *Operation) Succeeded() bool { return o.Return != Forever && o.Class == OK }

type Span struct{ From, To int64 }

func (s Span) Length() int64 { return s.To - s.From }

// Loss is a stretch of time in which the server forgot leases.
type Loss struct {
	Span
	Key     string // "" = all
	Revives bool   // older values may be back
}

// History is all that is known of a run.
type History struct {
	Terms  Terms
	Events []Event

	Ops    []*Operation // by call
	Kills  map[string]int64
	Away   map[string][]Span // when a worker did not run, as it saw itself or was made to
	Losses []Loss
	Struck []Span
	Healed int64 // 0 where it wasn't
}

// New makes a history of events in any order.
func New(terms Terms, events []Event) (*History, error) {
	h := &History{Terms: terms, Events: events, Kills: map[string]int64{}, Away: map[string][]Span{}}
	ops := map[string]*Operation{} // by name
	for _, e := range events {
		switch e.Kind {
		case Call:
			op := &Operation{Event: e, Return: Forever, Ended: Forever}
			ops[Name(e.Worker, e.ID)] = op
			h.Ops = append(h.Ops, op)
		case Kill:
			h.Kills[e.Worker] = e.At
		case Stop, Stall:
			h.Away[e.Worker] = append(h.Away[e.Worker], Span{e.At, e.Until})
		case Forget:
			h.Losses = append(h.Losses, Loss{Span{e.At, e.Until}, e.Key, e.Revives})
		case Struck:
			h.Struck = append(h.Struck, Span{e.At, e.Until})
		case Healed:
			h.Healed = e.At
		}
	}
	for _, e := range events {
		if e.Kind != Return && e.Kind != Ended {
			continue
		}
		op := ops[Name(e.Worker, e.ID)]
		if op == nil {
			return nil, fmt.Errorf("worker %s tells of operation %d, which it did not begin", e.Worker, e.ID)
		}
		if e.Kind == Ended {
			op.Ended, op.Last, op.Why = e.At, e.Deadline, e.Text
			continue
		}
		op.Return, op.Class, op.Text, op.Token, op.Lease, op.Values, op.Expires = e.At, e.Class, e.Text, e.Token, e.Lease, e.Values, e.Deadline
		op.Shown, op.Ran = e.Shown, e.Ran
	}
	slices.SortStableFunc(h.Ops, func(a, b *Operation) int { return cmp.Compare(a.At, b.At) })
	return h, nil
}

// Save writes it to a file: a line of terms, and a line an event.
func (h *History) Save(path string) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	err := lines.Encode(h.Terms)
	for _, e := range h.Events {
		err = errors.Join(err, lines.Encode(e))
	}
	return errors.Join(err, os.WriteFile(path, text.Bytes(), 0o644))
}

// Now is the time of all histories in ns: the monotonic clock, which all
// processes of a machine share and which nobody sets.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no machine without it
	}
	return ts.Nano()
}

// At is a moment of Go's own monotonic clock in the time of histories. Where its
// process is held up meanwhile it is early, never late.
func At(t time.Time) int64 {
	now := Now()
	return now + int64(time.Until(t))
}

// Kind says what an Event tells.
type Kind string

// The kinds of event.
const (
	Call   Kind = "call"   // an operation begins
	Return Kind = "return" // the operation with that ID is over
	Ended  Kind = "ended"  // the Context of what that operation got has ended by itself
	Stall  Kind = "stall"  // the worker did not run from At until Until
	Done   Kind = "done"   // the worker has finished
	Gauge  Kind = "gauge"  // what the worker's process takes

	// By the parent.
	Kill   Kind = "kill"   // the worker is being killed
	Stop   Kind = "stop"   // the worker was stopped from At until Until
	Struck Kind = "struck" // a fault, from At until Until
	Forget Kind = "forget" // between At and Until the server forgot leases: of Key, "" = of all
	Healed Kind = "healed" // the last fault is over
)

// The operations. Acquire and Lock get a lease, which Release, Unlock and Write
// name by its ID; a Load names the Read whose loader runs, a Run the Once.
const (
	Acquire    = "acquire"
	Release    = "release"
	Lock       = "lock"
	Unlock     = "unlock"
	Write      = "write"
	Read       = "read"
	Invalidate = "invalidate"
	Load       = "load"
	Close      = "close"
	Inspect    = "inspect"
	Revoke     = "revoke" // names its target by Lease
	Once       = "once"   // a DoOnce; its key is that of the lock, a slash and the slot
	Run        = "run"    // of the function of a Once
)

// The classes of outcome.
const (
	OK          = ""
	Fenced      = "fenced"
	Lost        = "lost"
	Revoked     = "revoked"
	NoLease     = "no such lease"
	Released    = "released"
	Busy        = "busy"
	Timeout     = "timeout" // the caller's own ctx ended
	Unavailable = "unavailable"
	LoadFailed  = "load failed"
	Other       = "other"
)

// Event is one line of a history.
type Event struct {
	Kind   Kind   `json:"e"`
	At     int64  `json:"at"`
	Until  int64  `json:"until,omitempty"`
	Worker string `json:"w,omitempty"`
	Client int    `json:"c,omitempty"`
	ID     int    `json:"id,omitempty"` // of the operation, among its worker's

	Op       string            `json:"op,omitempty"`
	Key      string            `json:"key,omitempty"`
	Keys     []string          `json:"keys,omitempty"` // Read and Invalidate
	For      int               `json:"for,omitempty"`  // the operation that this one belongs to
	Permits  int               `json:"n,omitempty"`
	Token    uint64            `json:"token,omitempty"`
	Lease    string            `json:"lease,omitempty"`    // the ID of what was got: turns of a process may share it
	Many     bool              `json:"many,omitempty"`     // of a DoMany, which has one ctx for all its leases
	Final    bool              `json:"final,omitempty"`    // all faults were over: its client tries until it succeeds
	Deadline int64             `json:"deadline,omitempty"` // of the lease, as it said itself
	Ahead    time.Duration     `json:"ahead,omitempty"`    // how far off that was at most while the lease was held
	Class    string            `json:"class,omitempty"`
	Text     string            `json:"text,omitempty"`   // of the error
	Values   map[string]string `json:"values,omitempty"` // what was read: key → load
	Shown    map[string]int    `json:"shown,omitempty"`  // by Inspect: the ID of a lease → its permits
	Revives  bool              `json:"revives,omitempty"`
	Ran      bool              `json:"ran,omitempty"` // by Once
	Fault    string            `json:"fault,omitempty"`
	Usage    *Usage            `json:"usage,omitempty"` // of a Gauge
}

// Usage is what a process takes.
type Usage struct {
	Goroutines int   `json:"goroutines"`
	Files      int   `json:"files"` // open descriptors, connections among them
	Heap       int64 `json:"heap"`  // bytes in use, after a collection
}
