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
