package main

import (
	"encoding/json"
	"errors"
	"os"
	"time"
)

// event is what a child reports, as a line of JSON on its stdout.
type event struct {
	At     stamp  `json:"at"`
	Kind   kind   `json:"kind"`
	Child  int    `json:"-"` // filled in by the parent, which knows the pipe
	Tenant string `json:"tenant,omitempty"`
	Job    int    `json:"job,omitempty"`

	Takes  time.Duration `json:"takes,omitempty"`  // of started: what the job will take
	Cut    bool          `json:"cut,omitempty"`    // of ended: before the job was done
	Token  uint64        `json:"token,omitempty"`  // of locked
	Result string        `json:"result,omitempty"` // of wrote: accepted, refused, or an error
	Lost   bool          `json:"lost,omitempty"`   // of ended: because the lease was lost
	Fault  string        `json:"-"`                // of gone: how it failed, with what it wrote to stderr
}

type kind string

// What a worker reports of a job …
const (
	waits   kind = "waits"
	started kind = "started" // Acquire has returned
	ended   kind = "ended"   // Release has not yet been called
	quits   kind = "gave up" // the show was over before it got a permit
)

// … a writer of its lock …
const (
	locked kind = "locked"
	wrote  kind = "wrote"
)

// … and the parent of its children.
const (
	killed kind = "killed" // before the signal was sent
	gone   kind = "gone"   // after the process had ended

	badClock kind = "bad clock" // see now
)

// stamp is a time in nanoseconds that compares across the processes of one
// machine.
type stamp int64

// born is read once a process, wall clock and monotonic clock together.
var born = time.Now()

// now is the wall clock at the start of the process, moved on by the monotonic
// clock, which Go does not show as a number. So a wall clock that is set during
// the run shifts nothing. One that is set just while the processes start would;
// the parent therefore rejects stamps that lie before the child's start or after
// their own arrival.
func now() stamp { return stamp(born.UnixNano() + int64(time.Since(born))) }

var errClock = errors.New("the clock was set while the processes started: nothing can be measured")

func (s stamp) sub(from stamp) time.Duration { return time.Duration(s - from) }

// emit stamps e and reports it. It returns only when the pipe has it, in one
// write: what a child did before it was killed is known to the last event.
func emit(e event) {
	e.At = now()
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // no event has a field that cannot be encoded
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(1) // the parent is gone
	}
}
